"""Collector `lustre`: all Lustre counters of this node, for every role and version."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from laggard_agent.collectors.interface import Context, Reading
from laggard_agent.collectors.lustre.param_paths import ParamDump, Parameters, Trees
from laggard_agent.collectors.lustre.table import JobTable, Outcome, ParamTable
from laggard_agent.collectors.lustre.table_specs import JOB_TABLES, TABLES
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import OnceLogged, OwnRow, gauges, raise_first
from laggard_common.config import between, checked
from laggard_common.wire.limits import MAX_COMPONENTS

NODE_FIELDS = gauges(
    *("healthy", "devices", "files_read", "files_gone", "files_failed"),
    *("lines_not_understood", "job_entries_left_out"),
)
_LOOK_EVERY_NS = 10 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class LustreSettings:
    """`[lustre]`: whether the statistics of jobs are read, and how many of a node at most."""

    job_stats: bool = False
    max_job_entries: int = field(default=8192, metadata=checked(between(1, MAX_COMPONENTS)))


@register
class LustreCollector:
    """Reads Lustre's files on a client, OSS or MDS; the files present decide which.

    Devices are searched every 10 s, and at once when one disappears. On a node without any Lustre device the
    row of source `lustre` has `devices` 0, and the log says so once. `leftovers`: unparsed lines of the
    latest sample, by file.
    """

    name = "lustre"
    settings = LustreSettings
    sources: ClassVar = {"lustre": NODE_FIELDS}

    def __init__(
        self, settings: LustreSettings, context: Context, parameters: Parameters | None = None
    ) -> None:
        roots = context.roots
        if parameters is None:
            trees = Trees(roots.procfs, roots.sysfs, roots.debugfs)
            parameters = trees if roots.lctl_dump is None else ParamDump(roots.lctl_dump)
        self._parameters = parameters
        self._context = context
        jobs = JOB_TABLES if settings.job_stats else ()
        self._tables: tuple[ParamTable | JobTable, ...] = (
            *map(ParamTable, TABLES),
            *(JobTable(spec, settings.max_job_entries) for spec in jobs),
        )
        self._looks = deque(self._tables)  # the first is searched next
        self._looked_ns: int | None = None
        self._health_place: str | None = None
        self._nothing = OnceLogged("lustre")
        self._own = OwnRow("lustre", NODE_FIELDS)
        self.leftovers: Mapping[str, tuple[bytes, ...]] = {}

    def read(self) -> Iterator[Reading]:
        """Yields a reading of each table with rows, then the node's own.

        Raises CollectError at the end for the first unreadable file, or the first table whose devices exist
        without their files.
        """
        self._look()
        outcome = Outcome()
        devices: set[str] = set()
        for table in self._tables:
            if table.places:
                devices |= table.devices
                reading = table.read(self._parameters, self._context.now(), outcome)
                if reading is not None:
                    yield reading
        self.leftovers = outcome.leftovers
        if outcome.gone:
            self._looked_ns = None
        yield self._node(outcome, len(devices))
        problems = [table.problem for table in self._tables if table.problem]
        self._nothing.update(not devices and not problems, f"nothing found under {self._parameters.roots}")
        raise_first([*outcome.failures, *problems])

    def _look(self) -> None:
        """Searches all tables at first, then one per sample, which spreads the cost."""
        now = self._context.monotonic_ns()
        every = len(self._looks)
        due = every if self._looked_ns is None else every * (now - self._looked_ns) // _LOOK_EVERY_NS
        if not due:
            return
        self._parameters.refresh()
        for _ in range(min(due, every)):
            self._looks[0].locate(self._parameters)
            self._looks.rotate(-1)
        self._health_place = self._parameters.find("health_check")
        self._looked_ns = now if self._looked_ns is None else self._looked_ns + due * _LOOK_EVERY_NS // every

    def _node(self, outcome: Outcome, devices: int) -> Reading:
        at = self._context.now()
        place = self._health_place
        health = outcome.read(self._parameters, place) if place else None
        return self._own.of(
            at,
            None if health is None else int(health.strip() == b"healthy"),
            devices,
            outcome.files,
            outcome.gone,
            len(outcome.failures),
            sum(map(len, outcome.leftovers.values())),
            sum(table.left_out for table in self._tables),
        )
