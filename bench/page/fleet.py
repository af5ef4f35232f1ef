"""A made-up site of any size, judged by the real pipeline over some hours, to be looked at.

Disks of storage nodes with reads that come and go for all at once, as a parallel job's do; some of them are
slow for some time. Counters are made by window and go into the pipeline as batches do after decoding; stores,
windows, detectors, alarms and view are those of the aggregator. The clock stands still.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership, PeerGroup, Rule
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.status.view import Status
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.schedule import WindowClock
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, topics
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 1_000_000_000
END_NS = 1_800_000_000 * SECOND  # of the last window: 2027-01-15 08:00 UTC
INTERVAL_SECONDS = 15
SHIFT = 30
FIELDS = (
    *("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms"),
    *("in_flight", "io_ms", "weighted_ms"),
)
CDF_GROUP = "raid-luns"


@dataclass(frozen=True, slots=True)
class Fault:
    """Components whose name matches are `factor` times slower in windows `first` to `last`, from the end."""

    components: str
    factor: float
    first: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class Kindred:
    """Nodes with disks of one model. `silent`: names of nodes that send nothing in the last hour."""

    nodes: Sequence[str]
    disks: int
    model: str
    milliseconds: float
    rotational: bool = True
    role: str = "storage"
    silent: Sequence[str] = ()


class Clock:
    """A clock that stands at the end of the last window, and a little."""

    def wall_ns(self) -> int:
        return END_NS + 20 * SECOND

    def monotonic_ns(self) -> int:
        return self.wall_ns()


class Fleet:
    """A site; `view` shows it as it is after `windows` windows."""

    def __init__(
        self,
        kinds: Sequence[Kindred],
        faults: Sequence[Fault] = (),
        windows: int = 97,
        thresholds: Mapping[str, float] | None = None,
        site: str = "lab",
    ) -> None:
        """`thresholds`: of components by key, compared once more by `cdf`, in a group of their own."""
        rules = []
        if thresholds:
            cdf = DetectSettings(detector="cdf", thresholds={"await": dict(thresholds)})
            cdf_group = PeerGroup(CDF_GROUP, "diskstats", "", ("await",), cdf)
            rules.append(Rule(cdf_group, re.compile("|".join(map(re.escape, thresholds)))))
        self.core = Machine(ConfiguredMembership(rules), site=site, lateness_seconds=5.0)
        clock = Clock()
        self.view = Status(self.core, WindowClock(clock.wall_ns, clock.monotonic_ns))
        self.view.restored = True
        self.view.started_at -= 9 * 86_400
        self._chance = np.random.default_rng(7)
        self._parts = [_Part(site, kind, self._chance) for kind in kinds]
        begun_ns = END_NS - windows * SHIFT * INTERVAL_SECONDS * SECOND
        for part in self._parts:
            for topic, payload in part.announcements(begun_ns):
                for _ in self.core.receive(((topic, payload, begun_ns),)):
                    raise AssertionError
        for back in range(windows - 1, -1, -1):
            self._window(back, faults)

    def _window(self, back: int, faults: Sequence[Fault]) -> None:
        """Half a window's samples of everyone, and the judgement of the window that ends with them."""
        end_ns = END_NS - back * SHIFT * INTERVAL_SECONDS * SECOND
        busy = 0.4 + 0.3 * np.sin(back / 7.0) + self._chance.gamma(2.0, 0.1, SHIFT)
        for part in self._parts:
            for taken in part.batches(self.core, end_ns, back, busy, faults):
                list(self.core.store((taken,)))
                self.core.admission.nodes.data(
                    taken.schema.node, int(taken.counters.read_ns[-1]), taken.received_ns
                )
        now_ns = end_ns + 20 * SECOND
        for close in self.core.closes(self.core.windows.due(now_ns), now_ns):
            sealed = self.core.seal(close)
            if sealed is not None:
                self.view.judged(self.core.judge.evaluate(sealed), sealed)


class _Part:
    """The nodes of one kind."""

    def __init__(self, site: str, kind: Kindred, chance: np.random.Generator) -> None:
        self._site = site
        self._kind = kind
        self._chance = chance
        count = len(kind.nodes) * kind.disks
        self._own = kind.milliseconds * chance.lognormal(0.0, 0.04, count)
        self._total = np.zeros((count, len(FIELDS)), dtype=np.int64)
        self._schemas = [self._schema(node) for node in kind.nodes]

    def announcements(self, made_ns: int) -> list[tuple[str, bytes]]:
        """Every node's schema and status, made at `made_ns`."""
        found = []
        for schema in self._schemas:
            found.append(
                (
                    topics.schema_topic(self._site, self._kind.role, schema.node, "diskstats"),
                    wire.encode_schema(schema),
                )
            )
            found.append(
                (topics.status_topic(self._site, self._kind.role, schema.node), _status(schema.node, made_ns))
            )
        return found

    def batches(
        self, core: Machine, end_ns: int, back: int, busy: NDArray[np.float64], faults: Sequence[Fault]
    ) -> list[Batch]:
        """A batch of each node that sends, of SHIFT samples."""
        values = self._counters(back, busy, faults)
        ticks = end_ns - np.arange(SHIFT - 1, -1, -1, dtype=np.int64) * INTERVAL_SECONDS * SECOND
        disks = self._kind.disks
        first = core.sequence.last + 1
        core.sequence.last += len(self._schemas)
        return [
            Batch(
                lsn=first + at,
                site=self._site,
                role=self._kind.role,
                stream=schema.stream,
                seq=0,
                received_ns=int(ticks[-1]) + SECOND // 20,
                schema=schema,
                counters=Block(
                    indexes=np.arange(disks, dtype=np.int64),
                    values=values[:, at * disks : (at + 1) * disks],
                    present=None,
                    tick_ns=ticks,
                    read_ns=ticks + 150_000,
                    idle=0,
                ),
                late=np.zeros(SHIFT, dtype=np.bool_),
            )
            for at, schema in enumerate(self._schemas)
            if back > 8 or schema.node not in self._kind.silent
        ]

    def _counters(self, back: int, busy: NDArray[np.float64], faults: Sequence[Fault]) -> NDArray[np.int64]:
        """Cumulative counters (SHIFT, components, fields) of one window."""
        slow = np.ones(len(self._own))
        for fault in faults:
            if fault.last <= back <= fault.first:
                slow[[bool(re.fullmatch(fault.components, name)) for name in self._names()]] *= fault.factor
        shape = (SHIFT, len(self._own))
        reads = self._chance.poisson(busy[:, None] * 90.0 * INTERVAL_SECONDS, shape)
        await_ms = self._own * slow * self._chance.lognormal(0.0, 0.12, shape) * (0.8 + 0.4 * busy[:, None])
        spent = np.round(reads * await_ms).astype(np.int64)
        rises = np.zeros((*shape, len(FIELDS)), dtype=np.int64)
        rises[..., 0], rises[..., 2], rises[..., 3] = reads, reads * 512, spent
        rises[..., 9] = np.minimum(spent, INTERVAL_SECONDS * 1000)
        rises[..., 10] = spent
        values = self._total + np.cumsum(rises, axis=0)
        self._total = values[-1]
        return values

    def _names(self) -> list[str]:
        return [f"{node}/{disk}" for node in self._kind.nodes for disk in _disks(self._kind.disks)]

    def _schema(self, node: str) -> Schema:
        labels = (
            ("model", self._kind.model),
            ("rotational", "1" if self._kind.rotational else "0"),
            ("size", "4000787030016"),
        )
        return Schema(
            node=node,
            source="diskstats",
            stream=node.encode().ljust(16, b".")[:16],
            epoch=1,
            interval_ns=INTERVAL_SECONDS * SECOND,
            batch_ticks=4,
            fields=tuple(Field(name) for name in FIELDS),
            components=tuple(
                Component(f"wwn-{node}-{at:02}", disk, labels)
                for at, disk in enumerate(_disks(self._kind.disks))
            ),
        )


def _disks(count: int) -> list[str]:
    """sda, sdb, ... sdz, sdaa, ..."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [f"sd{letters[at // 26 - 1] if at >= 26 else ''}{letters[at % 26]}" for at in range(count)]


def _status(node: str, made_ns: int) -> bytes:
    status = {
        "state": "up",
        "version": "0.1.0",
        "spool_bytes": 0,
        "dropped_samples": 0,
        "missed_ticks": 0,
        "cpu_seconds": 412.5,
        "resident_bytes": 21_400_000,
        "collectors": {
            "diskstats": {"success": True, "seconds": 0.0007, "error": ""},
            "host": {"success": True, "seconds": 0.0003, "error": ""},
        },
    }
    return wire.encode_envelope(
        Envelope(
            kind=Kind.STATE,
            node=node,
            source="status",
            stream=bytes(16),
            seq=0,
            schema_epoch=0,
            t0_ns=made_ns,
            dt_ns=0,
            n=1,
            codec=0,
            payload=wire.encode_state(status),
        )
    )
