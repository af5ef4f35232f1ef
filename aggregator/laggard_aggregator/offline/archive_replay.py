"""Replays an archive: the recorded batches and window closes in the recorded order."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.reader import ArchiveReader, RunStart
from laggard_aggregator.detect.interface import Window
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership, Rule
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.ingest.batches import Batch
from laggard_common.errors import InputError

Adjust = Callable[[str, DetectSettings], DetectSettings]
"""Maps a group's name and recorded settings to the settings of the replay."""
Judged = Callable[[DetectSettings], bool]
"""True when groups with these recorded settings are judged."""


class ArchiveReplay:
    """Yields the judgements of the running aggregator, identical to the bit unless `adjust` changes settings.

    Each recorded run starts from an empty state, as the daemon did. `topology` replaces the recorded one and
    is the one in use afterwards. Groups that are not `judged` keep their recorded settings and yield nothing.
    """

    def __init__(
        self,
        reader: ArchiveReader,
        adjust: Adjust = lambda _, settings: settings,
        topology: Topology | None = None,
        judged: Judged = lambda _: True,
    ) -> None:
        self._reader = reader
        self._adjust = adjust
        self._judged = judged
        self._topology = topology
        self.topology = topology or Topology()
        self._starts = {start.run_ns: start for start in reader.runs()}
        self._confirm: dict[str, int] = {}
        self.shown: dict[str, str] = {}

    def judgements(self, progress: Callable[[float], None] | None = None) -> Iterator[Judgement]:
        """The judgements of all runs in order; as `windows` for the rest."""
        for window, machine in self.windows(progress):
            yield from machine.judge.evaluate(window)

    def windows(self, progress: Callable[[float], None] | None = None) -> Iterator[tuple[Window, Machine]]:
        """The windows of all runs in order, each with the machine that sealed it.

        `progress` gets the share of window closes done so far. Raises InputError when the archive cannot
        be read or does not say how a run grouped its components.
        """
        closes = sum(1 for _ in self._reader.closes()) if progress else 0
        running, machine, closed = -1, None, 0
        for run_ns, event in self._reader.events():
            if machine is None or run_ns != running:
                running, machine = run_ns, self._machine(run_ns)
            if isinstance(event, Batch):
                deque(machine.store((event,)), maxlen=0)
                continue
            window = machine.seal(event)
            if window is not None and self._judged(machine.groups[event.group].detect):
                self._confirm[event.group] = machine.groups[event.group].detect.confirm
                self.shown.update(machine.names)
                yield window, machine
            closed += 1
            if progress is not None:
                progress(closed / closes)

    def confirm(self, group: str) -> int:
        """The k of 2k - 1 of a group that was judged."""
        return self._confirm[group]

    def _machine(self, run_ns: int) -> Machine:
        start = self._starts.get(run_ns)
        if start is None:
            raise InputError(
                str(self._reader.directory), f"no groups are recorded for the run of {run_ns} ns"
            )
        self.topology = self._topology or start.topology
        return Machine(
            self._membership(start),
            self.topology,
            lateness_seconds=start.lateness_seconds,
            after_seconds=start.after_seconds,
        )

    def _membership(self, start: RunStart) -> ConfiguredMembership:
        recorded = start.membership

        def adjusted(name: str, settings: DetectSettings) -> DetectSettings:
            return self._adjust(name, settings) if self._judged(settings) else settings

        rules = [
            Rule(replace(rule.group, detect=adjusted(rule.group.name, rule.group.detect)), rule.components)
            for rule in recorded.rules
        ]
        return ConfiguredMembership(rules, adjusted("", recorded.default), adjusted("", recorded.functions))
