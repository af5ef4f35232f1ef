"""One run of the demo, from the first agent's start to the last one's end."""

import asyncio
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from laggard_aggregator.app import App
from laggard_aggregator.demo.children import Children
from laggard_aggregator.demo.episodes import Episode, episodes, shortcomings
from laggard_aggregator.demo.recorded_job import write_recorded_job
from laggard_aggregator.demo.recording import Recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.screen import Screen, State
from laggard_aggregator.demo.site import LUNS, OWN, SHIFT_SAMPLES, make_site
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.status import formatting
from laggard_aggregator.status.view import Status
from laggard_aggregator.web import api
from laggard_aggregator.web.pages.page_state import StateReader
from laggard_common.clock import SystemClock
from laggard_common.config import load
from laggard_common.daemon.service import is_set_within
from laggard_common.errors import ServiceError
from laggard_common.visible import visible

START_SECONDS = 30.0
"""Limit for the start of broker, aggregator and agents."""
CLEAR_RECORDED_SECONDS = 240.0
"""Limit for the alarm to clear after the recording's end, in recorded seconds."""
REFRESH_SECONDS = 0.2
APART_SECONDS = 0.2
"""Delay between agents' starts: when clients connect at once, amqtt delays one or two of them for 10 s."""


class Demo:
    """A site in `folder` on which `recording` is replayed. `keep`: the folder stays after the run."""

    def __init__(
        self, recording: Recording, folder: Path, speed: int, console: Console, *, keep: bool = False
    ) -> None:
        self._recording = recording
        self._folder = f"{folder} ({'kept' if keep else 'deleted at the end; --keep keeps it'})"
        self._speed = speed
        self._console = console
        self._site = make_site(folder, recording.luns, 1 / speed)
        self._replay = Replay(recording, self._site.roots(), speed, SystemClock(), SHIFT_SAMPLES)
        self._agents = Children()
        self._aggregator: asyncio.Task[None]

    async def run(self, stop: asyncio.Event, once: bool) -> int:
        """Runs until `stop`, or with `once` to the recording's end; returns 1 when the findings are wrong.

        Raises ServiceError when a part does not start.
        """
        self._introduce()
        self._site.write()
        self._replay.prepare()
        app = App(load(AggregatorSettings, self._site.aggregator_toml))
        listening, end = asyncio.Event(), asyncio.Event()
        self._aggregator = asyncio.create_task(app.run(end, listening), name="aggregator")
        try:
            async with self._agents:
                await self._until("broker and aggregator", listening.is_set, stop)
                writing = asyncio.to_thread(write_recorded_job, self._recording, self._site, time.time())
                await asyncio.gather(writing, self._start(app.view, stop))
                await self._watch(app.view, stop, once)
        finally:
            end.set()
            await self._aggregator
        return self._verdict(self._episodes(app.view)) if once else 0

    def _introduce(self) -> None:
        r = self._recording
        self._say(
            f"{len(r.luns)} LUNs, recorded for {r.seconds:.0f} s; one of them slow for a while: {r.fault}."
        )
        replayed = (
            f"Replayed at {self._speed}x the speed, each LUN by an agent of its own: latencies (await) are "
            f"as recorded, rates {self._speed} times as high, utilisation that of as many loads at once. "
            "After its end the last part, without the fault, is repeated."
        )
        for line in textwrap.wrap(replayed, 79):
            self._say(line)
        self._say(f"Configuration, logs, archive: {self._folder}")
        self._say(self._where())
        self._say(f"The recorded load as a job that ended as the demo began: {self._url}/jobs")

    async def _start(self, view: Status, stop: asyncio.Event) -> None:
        """Starts one agent per LUN and one for this machine, once the aggregator is ready."""
        site = self._site
        await self._until("the aggregator's subscription", lambda: view.ready, stop)
        for node in site.nodes.values():
            await self._start_agent(node, "--procfs", str(site.procfs(node)))
            await is_set_within(stop, APART_SECONDS)
        await self._start_agent(OWN)
        await self._until("the agents", lambda: _nodes_up(view) > len(site.nodes), stop)

    async def _start_agent(self, node: str, *options: str) -> None:
        config = ("--config", str(self._site.agent_toml(node)))
        command = (sys.executable, "-P", "-m", "laggard_agent", *config, *options)
        await self._agents.start(command, self._site.log(node))

    async def _watch(self, view: Status, stop: asyncio.Event, once: bool) -> None:
        """Replays and shows the aggregator's view; with `once` until the verdict is known."""
        over = asyncio.Event()
        replaying = asyncio.create_task(self._replay.run(over), name="replay")
        try:
            with Screen(self._console, view, LUNS) as screen:
                while not stop.is_set() and not (once and self._done(view)):
                    self._check()
                    if replaying.done():
                        replaying.result()
                    self._show(view, screen)
                    await is_set_within(stop, REFRESH_SECONDS)
                self._show(view, screen)
        finally:
            over.set()
            await replaying
        self._say(self._this_machine(view))

    def _done(self, view: Status) -> bool:
        """True when the recording is over and every alarm is cleared, or one takes too long."""
        alarms = any(group == LUNS for group, _, _ in view.alarms())
        patience_ends = self._recording.seconds + CLEAR_RECORDED_SECONDS
        return self._replay.over and (not alarms or self._replay.recorded_seconds > patience_ends)

    def _show(self, view: Status, screen: Screen) -> None:
        if self._replay.begun_ns is None:
            return
        state = State(
            second=self._replay.recorded_seconds,
            seconds=self._recording.seconds,
            speed=self._speed,
            components=tuple(map(self._site.component, self._recording.luns)),
            episodes=self._episodes(view),
            remarks=(self._this_machine(view), self._where()),
        )
        screen.show(state)

    def _episodes(self, view: Status) -> list[Episode]:
        return episodes(view.history.transitions, view.alarms(), LUNS, self._replay.recorded_at)

    def _where(self) -> str:
        url = self._url
        return f"page: {url}/   metrics: {url}/metrics   or: laggard top --url {url}"

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._site.http_port}"

    def _this_machine(self, view: Status) -> str:
        """Summary of the agent on this machine's own /proc."""
        own = next(
            (group for group in api.groups(StateReader(view).now())["groups"] if group["group"] == OWN), None
        )
        if own is None:
            return "this machine itself: no disk of its own to be seen in /proc/diskstats"
        disks = own["live"] + own["silent"]
        alarms = [view.shown(component) for group, component, _ in view.alarms() if group == OWN]
        return (
            f"this machine itself: {formatting.counted(disks, 'disk')} in a separate group, "
            f"{own['note'] or 'judged'}{''.join(f', alarm on {name}' for name in alarms)}"
        )

    def _verdict(self, observed: list[Episode]) -> int:
        """Prints the findings; returns 0 when the right LUN and no other was blamed."""
        r = self._recording
        if not self._replay.over:
            self._say(f"ended at second {self._replay.recorded_seconds:.0f}, before the recording was over")
        wrong = shortcomings(observed, self._site.component(r.faulty), r.fault_start - r.start)
        blamed = ", ".join(dict.fromkeys(episode.component for episode in observed)) or "nothing"
        self._say(f"laggard blamed {blamed}: {'; '.join(wrong) or 'right'}")
        return 1 if wrong else 0

    def _say(self, line: str) -> None:
        self._console.print(visible(line), highlight=False, markup=False, soft_wrap=True)

    def _check(self) -> None:
        """Raises the aggregator's error, or ServiceError when an agent has ended."""
        if self._aggregator.done():
            self._aggregator.result()
            raise ServiceError("the aggregator has ended")
        if self._agents.ended():
            raise ServiceError(f"an agent has ended: {self._last_words()}")

    def _last_words(self) -> str:
        """Last log line of an agent above INFO."""
        for node in (*self._site.nodes.values(), OWN):
            lines = self._site.log(node).read_text(errors="replace").splitlines()
            if lines and " INFO " not in lines[-1]:
                return lines[-1]
        return "without an error in its log"

    async def _until(self, what: str, condition: Callable[[], bool], stop: asyncio.Event) -> None:
        """Waits until `condition` holds. Raises ServiceError at the time limit."""
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while not condition() and not stop.is_set():
            self._check()
            if asyncio.get_running_loop().time() > deadline:
                raise ServiceError(f"waited {START_SECONDS:.0f} s for {what}")
            await is_set_within(stop, REFRESH_SECONDS / 2)


def _nodes_up(view: Status) -> int:
    return sum(count for (_, state), count in view.node_counts().items() if state == "up")
