"""Continues a recording: repeats its recovered part with ever-rising counters."""

from collections.abc import Iterator, Mapping
from itertools import count

from laggard_aggregator.demo.recording import Sample

_LEADING = 3  # major, minor, name
_IN_FLIGHT = 8
"""The only column after the name that is not a counter (Documentation/admin-guide/iostats.rst)."""

_Counters = Mapping[str, tuple[int, ...]]


def repeated(samples: tuple[Sample, ...]) -> Iterator[Sample]:
    """Yields endless samples that continue from the last of `samples` (two or more) at the same rates."""
    first, *others = [_counters(sample) for sample in samples]
    names = {lun: row.split()[:_LEADING] for lun, row in samples[0].rows.items()}
    span = samples[-1].time - samples[0].time
    for turn in count(1):
        for sample, counters in zip(samples[1:], others, strict=True):
            rows = {
                lun: _row(names[lun], _later(counters[lun], first[lun], others[-1][lun], turn))
                for lun in names
            }
            yield Sample(sample.time + turn * span, rows)


def _counters(sample: Sample) -> _Counters:
    return {lun: tuple(map(int, row.split()[_LEADING:])) for lun, row in sample.rows.items()}


def _later(
    now: tuple[int, ...], first: tuple[int, ...], last: tuple[int, ...], turns: int
) -> tuple[int, ...]:
    """`now` plus `turns` times the rise from `first` to `last`."""
    raised = [n + turns * (b - a) for n, a, b in zip(now, first, last, strict=True)]
    raised[_IN_FLIGHT] = now[_IN_FLIGHT]
    return tuple(raised)


def _row(leading: list[bytes], counters: tuple[int, ...]) -> bytes:
    return b"%4s %7s %s %s\n" % (*leading, b" ".join(b"%d" % value for value in counters))
