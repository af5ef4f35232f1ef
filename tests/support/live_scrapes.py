"""The daemon's judgement of a Prometheus server's past, without waiting for it: the clock is moved."""

import asyncio
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch, Message
from laggard_aggregator.ingest.prometheus_input import PrometheusInput
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.settings.from_settings import membership
from laggard_common import config
from tests.support.clock import HandClock


@dataclass
class LiveScrapes:
    """An aggregator whose only input is the first `[[prometheus]]` of `settings`; it starts at `now`."""

    settings: AggregatorSettings
    now: float
    events: list[tuple[float, AlarmEvent]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    windows: list[tuple[str, float, float, bool]] = field(default_factory=list)
    """Component, begin, end and whether it was anomalous, of every window in which one was judged."""

    def __post_init__(self) -> None:
        s = self.settings
        self.clock = HandClock(round(self.now * 1e9))
        self.machine = Machine(
            membership(s),
            Topology([]),
            lateness_seconds=s.detect.lateness,
            after_seconds=s.alarm.after_seconds,
            site=s.site,
        )
        self.restart()

    def restart(self) -> None:
        """A new input over the same state, as after a restart."""
        self.input = PrometheusInput(
            self.settings.prometheus[0], self.machine.admission, self.clock, self.admit
        )

    async def admit(self, messages: list[Message]) -> bool:
        self.batches += [each for each in self.machine.receive(messages) if isinstance(each, Batch)]
        return True

    def run(self, end: float) -> None:
        """Polls after every scrape interval until `end`, and judges the windows that are due."""
        interval = self.settings.prometheus[0].scrape_seconds
        asyncio.run(self._run(end, interval))

    async def _run(self, end: float, interval: float) -> None:
        while self.now + interval <= end:
            self.now = (self.now // interval + 1) * interval
            self.clock.ns = round((self.now + self.input.settle_seconds + 0.5) * 1e9)
            await self.input.poll()
            self.judge()

    def judge(self) -> None:
        machine, now_ns = self.machine, self.clock.ns
        due = machine.windows.due(now_ns)
        for close in machine.closes(due, now_ns):
            sealed = machine.seal(close)
            for judged in () if sealed is None else machine.judge.evaluate(sealed):
                self.events += [(now_ns / 1e9, event) for event in judged.transitions]
                for at, component in enumerate(judged.components):
                    if judged.levels[at] == "component" and judged.verdicts.judged[at]:
                        anomalous = bool(judged.verdicts.anomalous[at])
                        self.windows.append((component, judged.start, judged.end, anomalous))

    def deliver(self, at: float, messages: Iterable[tuple[str, bytes]]) -> None:
        """Admits agents' messages, by topic, a second after `at`, and judges the windows that are due."""
        self.clock.ns = round((at + 1) * 1e9)
        asyncio.run(self.admit([(topic, payload, self.clock.ns) for topic, payload in messages]))
        self.judge()

    @property
    def raised(self) -> Iterator[str]:
        """Components with an alarm, in the order of their alarms."""
        return (event.alarm.component for _, event in self.events if event.kind == "raised")


def live_scrapes(url: str, now: float, *lines: str, more: str = "") -> LiveScrapes:
    """An aggregator with a `[[prometheus]]` of `url` and node_exporter's map; `lines` of that table."""
    table = "\n".join(lines)
    server = f'urls = ["{url}"]\nmaps = ["node_exporter"]'
    text = f"{more}\n[mqtt]\nenabled = false\n[[prometheus]]\n{server}\n{table}"
    return LiveScrapes(config.parse(AggregatorSettings, tomllib.loads(text)), now)
