"""Counts samples by function from the ring buffers, in the order of events."""

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from laggard_agent.collectors.fnprofile.address_spaces import Spaces
from laggard_agent.collectors.fnprofile.records import SAMPLE_WORDS, Change, Records
from laggard_agent.collectors.fnprofile.symbolizer import Resolver

_PID = 0xFFFF_FFFF
_MODE = 7  # the CPU's mode, in a header's misc
_NOBODY = 0  # the idle task


class _RawSample(NamedTuple):
    time: int
    pid: int
    header: int
    address: int


class SampleCounter:
    """Counts samples in `counts` by function. `lost`, `throttled`, `garbled`, `samples`: totals."""

    def __init__(self, spaces: Spaces, resolver: Resolver) -> None:
        self._spaces = spaces
        self._resolver = resolver
        self.counts: Counter[str] = Counter()
        self.samples = 0
        self.lost = 0
        self.throttled = 0
        self.garbled = 0
        self._missed = False

    def resynchronize(self) -> None:
        """Reads all processes again after lost records, with a delay, as that costs further time."""
        if self._missed:
            self._missed = False
            self._spaces.forget()

    def add(self, rings: Iterable[Records]) -> None:
        """Counts the contents of all CPUs' ring buffers since the previous call.

        Samples of a process that changed in that time (started, executed, mapped a file, ended) are ordered
        with the changes; the order of all others does not matter.
        """
        rings = list(rings)
        changes = [change for records in rings for change in records.changes]
        changed = {change.pid for change in changes}
        alike: Counter[tuple[int, int, int]] = Counter()
        ordered: list[_RawSample | Change] = [*changes]
        for records in rings:
            for run in records.runs:
                headers, addresses = run[::SAMPLE_WORDS], run[1::SAMPLE_WORDS]
                threads = run[2::SAMPLE_WORDS]
                if changed.isdisjoint({thread & _PID for thread in set(threads)}):
                    alike.update(zip(headers, threads, addresses, strict=True))
                    continue
                times = run[3::SAMPLE_WORDS]
                for header, thread, address, time in zip(headers, threads, addresses, times, strict=True):
                    if thread & _PID in changed:
                        ordered.append(_RawSample(time, thread & _PID, header, address))
                    else:
                        alike[header, thread, address] += 1
            self.lost += records.lost
            self.throttled += records.throttled
            self.garbled += records.garbled
        for (header, thread, address), count in alike.items():
            self._count(thread & _PID, header, address, count)
        for what in sorted(ordered, key=attrgetter("time")):
            if isinstance(what, _RawSample):
                self._count(what.pid, what.header, what.address, 1)
            else:
                self._spaces.apply(what)
        if any(records.lost or records.garbled for records in rings):
            self._missed = True  # a change may be among the lost records

    def _count(self, pid: int, header: int, address: int, count: int) -> None:
        if pid == _NOBODY:
            return
        self.samples += count
        name = self._resolver.name(self._spaces.of(pid), header >> 32 & _MODE, address)
        self.counts[name] += count
