"""What profilers and tracers of several servers would send: batches of cumulative counters by function."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from laggard_aggregator.ingest.batches import Batch
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.builders.batches import SECOND, batch_of

SAMPLES_PER_SECOND = {
    "gfsd/libc/memcpy": 40.0,
    "gfsd/gfsd/readv": 25.0,
    "gfsd/gfsd/writev": 25.0,
    "gfsd/kernel/copy_user": 60.0,
    "kworker/kernel/tcp_sendmsg": 30.0,
    "kworker/kernel/schedule": 8.0,
    "sshd/sshd/main": 0.2,
}
CALLS_PER_SECOND = {"gfsd/gfsd/readv": 200.0, "gfsd/gfsd/pwrite": 50.0, "gfsd/gfsd/lookup": 20.0}
SECONDS_PER_CALL = {"gfsd/gfsd/readv": 0.0005, "gfsd/gfsd/pwrite": 0.004, "gfsd/gfsd/lookup": 0.001}

Extra = Mapping[str, float]


@dataclass
class Server:
    """One server; `extra` samples a second of functions from `extra_from` (s) on; slow calls likewise.

    `busy`: how much it does as a multiple of the usual. `hz`: what the profiler samples at.
    """

    node: str
    chance: np.random.Generator
    extra: Extra = field(default_factory=dict)
    slow: Extra = field(default_factory=dict)
    fault_from: int = 0
    busy: float = 1.0
    hz: float = 997.0
    announced: list[str] = field(default_factory=list)

    def schema(self, source: str, fields: tuple[Field, ...], interval: int, ticks: int) -> Schema:
        return Schema(
            node=self.node,
            source=source,
            stream=b"s" * 16,
            epoch=len(self.announced),
            interval_ns=interval * SECOND,
            batch_ticks=ticks,
            fields=fields,
            components=tuple(Component(name, name) for name in self.announced),
        )

    def _announce(self, names: Sequence[str]) -> None:
        self.announced += [name for name in names if name not in self.announced]

    def profile(self, start_ns: int, seconds: int, role: str = "storage") -> Iterator[Batch]:
        """A reading every 10 s, one a message; functions are announced when they are first seen."""
        fields = (Field("samples"), Field("cpu_ns", unit="ns"))
        sample_ns = round(1e9 / self.hz)
        total: dict[str, int] = {}
        schema = None
        for seq, at in enumerate(range(0, seconds, 10)):
            rates = {name: rate * self.busy for name, rate in SAMPLES_PER_SECOND.items()}
            if at >= self.fault_from:
                for name, rate in self.extra.items():
                    rates[name] = rates.get(name, 0.0) + rate
            for name, rate in rates.items():
                seen = int(self.chance.poisson(rate * 10 * self.hz / 997.0))
                if seen or name in total:
                    total[name] = total.get(name, 0) + seen
            self._announce(list(total))
            if schema is None or len(schema.components) != len(self.announced):
                schema = self.schema("fnprofile", fields, 10, 1)
            values = np.array([[(total[name], total[name] * sample_ns) for name in self.announced]])
            tick = start_ns + (at + 10) * SECOND
            yield batch_of(schema, values, tick, seq=seq, role=role)

    def trace(self, start_ns: int, seconds: int) -> Iterator[Batch]:
        """A reading every second, five a message."""
        names = list(CALLS_PER_SECOND)
        self._announce(names)
        schema = self.schema("fntrace", (Field("calls"), Field("self_ns", unit="ns")), 1, 5)
        total = np.zeros((len(names), 2), dtype=np.int64)
        for seq, begin in enumerate(range(0, seconds, 5)):
            ticks = []
            for at in range(begin, begin + 5):
                for row, name in enumerate(names):
                    calls = int(self.chance.poisson(CALLS_PER_SECOND[name] * self.busy))
                    each = SECONDS_PER_CALL[name] * self.chance.uniform(0.9, 1.1)
                    if at >= self.fault_from:
                        each *= self.slow.get(name, 1.0)
                    total[row] += (calls, int(calls * each * 1e9))
                ticks.append(total.copy())
            yield batch_of(schema, np.array(ticks), start_ns + (begin + 1) * SECOND, seq=seq)


def in_order(*streams: Iterator[Batch]) -> list[Batch]:
    """All batches in the order in which they were received."""
    return sorted((batch for stream in streams for batch in stream), key=lambda batch: batch.received_ns)


def servers(
    seed: int,
    count: int = 8,
    *,
    extra: Extra | None = None,
    slow: Extra | None = None,
    fault_from: int = 0,
    faulty: int = 3,
) -> list[Server]:
    """Servers `oss-0` and so on that do the same, but for the `faulty` one."""
    return [
        Server(
            f"oss-{n}",
            np.random.default_rng((seed, n)),
            extra=(extra or {}) if n == faulty else {},
            slow=(slow or {}) if n == faulty else {},
            fault_from=fault_from,
            busy=1.0 + 0.05 * (n % 3 - 1),
        )
        for n in range(count)
    ]
