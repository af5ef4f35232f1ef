"""Samples all CPUs: keeps an event open on each online CPU and drains their ring buffers.

Runs on a thread of its own that sleeps until a ring buffer is half full, a second has passed or a request
arrives.
"""

import errno
import logging
import os
import select
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from laggard_agent.collectors.fnprofile.address_spaces import Spaces, beginning_of
from laggard_agent.collectors.fnprofile.perf import Open, PerfEvent, Ring, refusal, ring_bytes
from laggard_agent.collectors.fnprofile.records import SAMPLE_WORDS, Change, Records, parse
from laggard_agent.collectors.fnprofile.symbolizer import Resolver
from laggard_common.errors import CollectError

_log = logging.getLogger(__name__)

_DRAIN_EVERY_MS = 1000
_REST = 4  # pause after draining, as a multiple of its duration: at most a fifth of a CPU
_ANSWER_WITHIN_SECONDS = 30.0  # on an overloaded machine
_MOST_CPUS = 1 << 13
_PID = 0xFFFF_FFFF
_MODE = 7  # the CPU's mode, in a header's misc
_NOBODY = 0  # the idle task


class CpuSamples(NamedTuple):
    """`counts`: samples by function since someone asked last. The other counters are in all so far."""

    counts: Counter[str]
    samples: int
    lost: int
    throttled: int
    garbled: int
    cpus: int
    processes: int


def online_cpus(sysfs: Path) -> list[int]:
    """Parses /sys/devices/system/cpu/online (`0-3,8`); CPU 0 for an empty text."""
    text = beginning_of(sysfs / "devices/system/cpu/online", 1 << 16).decode("ascii", "replace")
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            cpus += range(int(first), min(int(last or first), _MOST_CPUS) + 1)
    return cpus[:_MOST_CPUS] or [0]


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
                for header, thread, address, at in zip(headers, threads, addresses, times, strict=True):
                    if thread & _PID in changed:
                        ordered.append(_RawSample(at, thread & _PID, header, address))
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


class CpuSampler:
    """Samples from `start` until `stop`. Raises CollectError without permission."""

    def __init__(self, event: PerfEvent, opened: Open, procfs: Path, sysfs: Path, resolver: Resolver) -> None:
        self.event = event
        self._open = opened
        self._procfs = procfs
        self._sysfs = sysfs
        self._resolver = resolver
        self._spaces = Spaces(procfs)
        self._tally = SampleCounter(self._spaces, resolver)
        self._rings: dict[int, Ring] = {}
        self._poll = select.poll()
        self._asked = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = threading.Lock()
        self._answers: SimpleQueue[CpuSamples | None] = SimpleQueue()
        self._wanted = False
        self._stopped = False
        self.failure = ""
        """Why the thread has ended; empty before."""
        self._poll.register(self._asked, select.POLLIN)
        self._question = select.poll()
        self._question.register(self._asked, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="fnprofile", daemon=True)

    def start(self) -> None:
        """Opens the events and starts. Raises CollectError and then leaves nothing open."""
        try:
            self._follow_cpus(first=True)
        except OSError as exc:
            self.failure = "sampling never began"
            self._close()
            raise refusal(exc, self._procfs) from exc
        self._resolver.refresh()
        self._thread.start()

    def stop(self, wait_seconds: float = 0.0) -> None:
        """Ends the thread, which closes everything; waits for it with a limit."""
        self._stopped = True
        self._wake()
        if wait_seconds and self._thread.is_alive():
            self._thread.join(wait_seconds)

    def drain(self) -> CpuSamples:
        """The samples up to now. Raises CollectError when the thread does not answer or has ended."""
        if not self._wanted:  # otherwise the answer to the previous request is still due
            self._wanted = True
            self._wake()
        try:
            taken = self._answers.get(timeout=_ANSWER_WITHIN_SECONDS)
        except Empty:
            raise CollectError("perf events", "the samples were not read in time") from None
        if taken is None:
            raise CollectError("perf events", self.failure)
        return taken

    def _run(self) -> None:
        failure = "sampling was stopped"
        try:
            while not self._stopped:
                self._drop_dead(self._poll.poll(_DRAIN_EVERY_MS))
                started = time.thread_time_ns()
                self._drain()
                self._follow_cpus()
                # A process that maps files endlessly fills them faster than they are drained: records are
                # lost.
                self._question.poll((time.thread_time_ns() - started) * _REST // 1_000_000)
        except Exception as exc:  # every error must reach the caller
            _log.exception("collector fnprofile: sampling ended")
            failure = f"sampling ended: {type(exc).__name__}: {exc}"
        finally:
            self.failure = failure
            self._close()
            self._answers.put(None)

    def _drain(self) -> None:
        """Counts the contents of the ring buffers, and answers a pending request."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._asked)  # before the request, or its remains would wake the thread forever
        wanted = self._wanted
        if wanted:
            self._resolver.refresh()
            self._tally.resynchronize()
        self._resolver.earn()
        self._tally.add([parse(ring.drain()) for ring in self._rings.values()])
        if wanted:
            tally, self._wanted = self._tally, False
            counts, tally.counts = tally.counts, Counter()
            totals = (tally.samples, tally.lost, tally.throttled, tally.garbled)
            self._answers.put(CpuSamples(counts, *totals, len(self._rings), len(self._spaces)))

    def _drop_dead(self, ready: Sequence[tuple[int, int]]) -> None:
        """Closes the events of CPUs that went offline."""
        dead = {fd for fd, what in ready if what & (select.POLLHUP | select.POLLERR | select.POLLNVAL)}
        for cpu in [cpu for cpu, ring in self._rings.items() if ring.fd in dead]:
            self._end(cpu)

    def _follow_cpus(self, *, first: bool = False) -> None:
        """Opens events on new CPUs, closes those of CPUs that went offline. Raises OSError when `first`."""
        online = online_cpus(self._sysfs)
        for cpu in self._rings.keys() - set(online):
            self._end(cpu)
        for cpu in online:
            if cpu not in self._rings:
                try:
                    ring = Ring(self._open(self.event, cpu), ring_bytes(self.event))
                except OSError as exc:
                    if first and exc.errno != errno.ENODEV:  # that CPU went offline meanwhile
                        raise
                    continue
                self._rings[cpu] = ring
                self._poll.register(ring.fd, select.POLLIN)

    def _end(self, cpu: int) -> None:
        ring = self._rings.pop(cpu)
        self._poll.unregister(ring.fd)
        ring.close()

    def _wake(self) -> None:
        with self._closing:
            if self._asked >= 0:
                os.eventfd_write(self._asked, 1)

    def _close(self) -> None:
        for cpu in list(self._rings):
            self._end(cpu)
        with self._closing:
            os.close(self._asked)
            self._asked = -1
