"""Metrics of operations that have two counters: the number, and the sum of times or sizes."""

from collections.abc import Callable, Mapping, Sequence

from laggard_aggregator.metrics.definition import Differences, FloatArray, Metric, ratio

Pairs = Sequence[tuple[str, str]]
"""Counter names: number and sum."""


def total(d: Differences, counters: Sequence[str]) -> FloatArray:
    """The summed increases of all `counters`."""
    first, *others = counters
    rise = d[first]
    for name in others:
        rise += d[name]
    return rise


def mean(unit: str, pairs: Pairs, scale: float = 1.0) -> Metric:
    """The mean of the operations in `pairs`, sums times `scale`; larger is worse. 0 without an operation."""
    counts, sums = zip(*pairs, strict=True)

    def derive(d: Differences) -> FloatArray:
        return ratio(total(d, sums) * scale, total(d, counts))

    return Metric(unit, +1, (*counts, *sums), derive)


def amount(unit: str, counters: Sequence[str]) -> Metric:
    """Number of operations in all."""
    return Metric(unit, 0, tuple(counters), lambda d: total(d, counters), amount=True)


def transfers(counts: tuple[str, str], transferred: tuple[str, str]) -> Mapping[str, Metric]:
    """The load of reads and writes, whose counters come in this order: operations and bytes of each."""
    every = (*counts, *transferred)

    def share(d: Differences) -> FloatArray:
        return ratio(d[counts[0]], total(d, counts))

    return {
        "operations": amount("operations", counts),
        "throughput": Metric("bytes/s", 0, transferred, lambda d: total(d, transferred) / d.seconds),
        "request_bytes": Metric("bytes", 0, every, _per_operation(counts, transferred)),
        "read_share": Metric("1", 0, counts, share),
    }


def _per_operation(
    counts: tuple[str, str], transferred: tuple[str, str]
) -> Callable[[Differences], FloatArray]:
    return lambda d: ratio(total(d, transferred), total(d, counts))
