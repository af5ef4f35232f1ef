"""The collector `fnprofile`: CPU time of this node by program, image and function.

Instruction pointers are sampled on all CPUs, of user programs and kernel threads alike. They give a vector
over functions every 10 s, as OProfile did for the HotDep paper ("Sample profiles").
"""

import errno
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.fnprofile import perf
from laggard_agent.collectors.fnprofile.cpu_sampler import CpuSampler
from laggard_agent.collectors.fnprofile.functions import FIELDS, Functions
from laggard_agent.collectors.fnprofile.symbolizer import Kernel, Resolver
from laggard_agent.collectors.interface import Context, Reading
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged, OwnRow, gauges
from laggard_common.config import between, checked, one_of
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_COMPONENTS
from laggard_common.wire.schema import Field, FieldKind

SAMPLER_FIELDS = (
    *gauges("cpus", "processes", "functions", "kernel_hidden"),
    Field("frequency", FieldKind.GAUGE, "Hz"),
    Field("sample_cpu_ns", FieldKind.GAUGE, "ns"),
    Field("samples"),
    Field("lost"),
    Field("throttled"),
    Field("garbled_bytes", unit="bytes"),
    Field("functions_replaced"),
)
FIRST_SECONDS = 0.5
_CLOSING_SECONDS = 5.0
_RETRY_NS = 10 * 1_000_000_000
_NO_COUNTER = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class FnprofileSettings:
    """`[fnprofile]`: sampling frequency of each CPU, seconds per vector, most functions with a row.

    `cgroup`: folder of the only control group to sample; empty: all processes.
    """

    frequency_hz: float = field(default=997.0, metadata=checked(between(1, 10_000)))
    vector_seconds: float = field(default=10.0, metadata=checked(between(0.1, 3600)))
    max_functions: int = field(default=4096, metadata=checked(between(16, MAX_COMPONENTS // 2)))
    event: str = field(default="auto", metadata=checked(one_of(("auto", "cpu-clock", "cycles"))))
    cgroup: str = ""


@register
class Fnprofile:
    """Samples from the first reading on, which takes FIRST_SECONDS and returns the samples of that time.

    A vector is added at the first reading in each span of `vector_seconds` of the wall clock; in between,
    readings say the same again. Without `open_event`, the trees of another node are not sampled.
    """

    name = "fnprofile"
    settings = FnprofileSettings
    sources: ClassVar = {"fnprofile": FIELDS, "fnprofile_sampler": SAMPLER_FIELDS}

    def __init__(
        self,
        settings: FnprofileSettings,
        context: Context,
        *,
        open_event: perf.Open | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._procfs = context.roots.procfs
        self._sysfs = context.roots.sysfs if context.roots.own or open_event else None
        self._now = context.now
        self._monotonic_ns = context.monotonic_ns
        self._open = open_event or perf.open_event
        self._pause = pause
        self._vector_ns = round(settings.vector_seconds * 1e9)
        self._vector = 0
        self._kernel = Kernel(self._procfs, self._monotonic_ns)
        self._sampler: CpuSampler | None = None
        self._at_end: weakref.finalize[..., Fnprofile] | None = None
        self._cgroup = 0
        self._functions: Functions | None = None
        self._row: Row = ()
        self._failure: CollectError | None = None
        self._retry_at_ns = 0
        self._own = OwnRow("fnprofile_sampler", SAMPLER_FIELDS)
        self._nothing = OnceLogged("fnprofile")

    def read(self) -> Iterator[Reading]:
        """The functions, then the sampler's own row. Raises CollectError when nothing can be sampled."""
        if self._sysfs is None:
            self._nothing.update(True, "nothing found: the trees are of another node")
            return
        begun = self._begin(self._sysfs)
        at = self._now()
        failure: CollectError | None = None
        if begun or at // self._vector_ns != self._vector:
            try:
                self._take()
                self._vector = at // self._vector_ns
            except CollectError as exc:
                failure = exc
        if self._functions is not None and self._row:
            yield Reading("fnprofile", FIELDS, at, self._functions.components, self._functions.rows)
            yield self._own.of(at, *self._row)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Ends the sampling and waits for that; the end of this object ends it, too."""
        if self._sampler is not None:
            self._sampler.stop(_CLOSING_SECONDS)

    def _begin(self, sysfs: Path) -> bool:
        """Starts the sampling where it is not under way; whether it did."""
        if self._sampler is not None and not self._sampler.failure and self._cgroup == self._cgroup_now():
            return False
        now = self._monotonic_ns()
        if self._failure is not None and now < self._retry_at_ns:
            raise self._failure
        self._retry_at_ns = now + _RETRY_NS
        self.close()
        self._cgroup = self._cgroup_now()
        try:
            resolver = Resolver(self._procfs, self._kernel, self._monotonic_ns, time.thread_time_ns)
            event = replace(self._event(sysfs), cgroup=self._settings.cgroup)
            sampler = CpuSampler(event, self._open, self._procfs, sysfs, resolver)
            sampler.start()
        except CollectError as exc:
            self._failure = exc
            raise
        self._sampler, self._failure = sampler, None
        self._functions = Functions(self._settings.max_functions, sampler.event.cpu_ns)
        if self._at_end is not None:
            self._at_end.detach()  # it would keep all that the one before knew
        self._at_end = weakref.finalize(self, sampler.stop)
        self._pause(FIRST_SECONDS)
        return True

    def _cgroup_now(self) -> int:
        """ID of the control group at the configured path, 0 for none; a restarted service gets another."""
        try:
            return Path(self._settings.cgroup).stat().st_ino if self._settings.cgroup else 0
        except OSError:
            return 0

    def _event(self, sysfs: Path) -> perf.PerfEvent:
        """The event to sample: cycles if the CPU counts them and its frequency is known, else its clock."""
        wanted, hz = self._settings.event, self._settings.frequency_hz
        if wanted == "cpu-clock":
            return perf.clock_event(hz)
        cpu_hz = perf.cpu_hz(sysfs)
        reason = "the frequency of the CPU is not known"
        if cpu_hz is not None:
            event = perf.cycles_event(hz, cpu_hz)
            try:
                os.close(self._open(event, 0))
                return event
            except OSError as exc:
                if exc.errno not in _NO_COUNTER:
                    raise perf.refusal(exc, self._procfs) from exc
                reason = "this machine does not count cycles"
        if wanted == "cycles":
            raise CollectError("perf_event_open", f"{reason}: use the event cpu-clock")
        return perf.clock_event(hz)

    def _take(self) -> None:
        """Adds the samples since the previous call."""
        sampler, functions = self._sampler, self._functions
        if sampler is None or functions is None:
            return
        taken = sampler.drain()
        functions.add(taken.counts, self._monotonic_ns())
        self._row = (
            taken.cpus,
            taken.processes,
            len(functions.components),
            int(self._kernel.is_hidden),
            round(1e9 / sampler.event.cpu_ns),
            sampler.event.cpu_ns,
            taken.samples,
            taken.lost,
            taken.throttled,
            taken.garbled,
            functions.replaced,
        )
        self._nothing.update(not taken.samples, f"nothing found: no sample of {sampler.event.name}")
