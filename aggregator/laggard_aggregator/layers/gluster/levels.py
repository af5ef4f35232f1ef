"""The levels that a call passes within a client or brick, and for how long it is held at each.

Translators of one kind are one level, in the order of the dump; a client's connections to its bricks are the
lowest. A level that passes each call to several below it waits for the slowest of them.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from laggard_aggregator.layers.gluster.counters import DATA, GlusterLayer
from laggard_aggregator.layers.gluster.statedumps import GlusterProcess, Translator

CONNECTION = "protocol/client"
_SEVERAL = 1.5
"""Calls below for each above, from which they are taken to run beside each other."""

Level = tuple[str, list[Translator]]


def layers(process: GlusterProcess) -> Iterator[GlusterLayer]:
    """A layer a level; connections one each. Levels without reads and writes are left out."""
    levels = [level for level in _levels(process) if any(_calls(level[1], fop) for fop in DATA)]
    for at, (kind, members) in enumerate(levels):
        below = levels[at + 1][1] if at + 1 < len(levels) else []
        held = _held_by_fop(members, below)
        if kind == CONNECTION:
            for member in sorted(members, key=attrgetter("name")):
                yield GlusterLayer(
                    kind, f"{process.name} {member.name}", _fops([member]), held=_held_by_fop([member], [])
                )
        else:
            yield GlusterLayer(kind, process.name, _fops(members), held=held)


def slowest(connections: Sequence[GlusterLayer], fop: str) -> float:
    """The highest mean of an operation at a client's connections, ns."""
    return max((connection.mean_of(fop) for connection in connections), default=0.0)


def _levels(process: GlusterProcess) -> list[Level]:
    by_kind: dict[str, list[Translator]] = {}
    for translator in process.translators.values():
        by_kind.setdefault(translator.kind, []).append(translator)
    lowest = by_kind.pop(CONNECTION, None)
    return [*by_kind.items(), *([(CONNECTION, lowest)] if lowest else [])]


def _calls(members: Sequence[Translator], fop: str) -> int:
    return sum(member.fops.get(fop, (0, 0))[0] for member in members)


def _held_by_fop(members: Sequence[Translator], below: Sequence[Translator]) -> dict[str, float]:
    by_fop = ((fop, _held(members, below, fop)) for fop in DATA)
    return {fop: held for fop, held in by_fop if held is not None}


def _total(members: Sequence[Translator], fop: str) -> int:
    return sum(member.fops.get(fop, (0, 0))[1] for member in members)


def _held(members: Sequence[Translator], below: Sequence[Translator], fop: str) -> float | None:
    """Mean nanoseconds of a call at the members that no level below has; None without calls."""
    calls, total = _calls(members, fop), _total(members, fop)
    if not calls:
        return None
    passed = _calls(below, fop)
    if passed > _SEVERAL * calls:
        waited = max(low.fops[fop][1] / low.fops[fop][0] for low in below if low.fops.get(fop, (0, 0))[0])
    else:
        waited = _total(below, fop) / calls
    return max(0.0, total / calls - waited)


def _fops(members: Sequence[Translator]) -> dict[str, tuple[int, float]]:
    means = {}
    for fop in sorted({fop for member in members for fop in member.fops}):
        if calls := _calls(members, fop):
            means[fop] = (calls, _total(members, fop) / calls)
    return means
