"""The levels that a call passes within a client or brick, and for how long it is held at each.

Translators of one kind are one level, in the order of the dump; a client's connections to its bricks are the
lowest. A level that passes each call to several below it waits for the slowest of them.
"""

from collections.abc import Iterator, Sequence

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
            for each in sorted(members, key=lambda member: member.name):
                yield GlusterLayer(
                    kind, f"{process.name} {each.name}", _fops([each]), held=_held_by_fop([each], [])
                )
        else:
            yield GlusterLayer(kind, process.name, _fops(members), held=held)


def slowest(connections: Sequence[GlusterLayer], fop: str) -> float:
    """The highest mean of an operation at a client's connections, ns."""
    return max((each.mean_of(fop) for each in connections), default=0.0)


def _levels(process: GlusterProcess) -> list[Level]:
    by_kind: dict[str, list[Translator]] = {}
    for each in process.translators.values():
        by_kind.setdefault(each.kind, []).append(each)
    lowest = by_kind.pop(CONNECTION, None)
    return [*by_kind.items(), *([(CONNECTION, lowest)] if lowest else [])]


def _calls(members: Sequence[Translator], fop: str) -> int:
    return sum(each.fops.get(fop, (0, 0))[0] for each in members)


def _held_by_fop(members: Sequence[Translator], below: Sequence[Translator]) -> dict[str, float]:
    by_fop = ((fop, _held(members, below, fop)) for fop in DATA)
    return {fop: held for fop, held in by_fop if held is not None}


def _total(members: Sequence[Translator], fop: str) -> int:
    return sum(each.fops.get(fop, (0, 0))[1] for each in members)


def _held(members: Sequence[Translator], below: Sequence[Translator], fop: str) -> float | None:
    """Mean nanoseconds of a call at the members that no level below has; None without calls."""
    calls, total = _calls(members, fop), _total(members, fop)
    if not calls:
        return None
    passed = _calls(below, fop)
    if passed > _SEVERAL * calls:
        waited = max(each.fops[fop][1] / each.fops[fop][0] for each in below if each.fops.get(fop, (0, 0))[0])
    else:
        waited = _total(below, fop) / calls
    return max(0.0, total / calls - waited)


def _fops(members: Sequence[Translator]) -> dict[str, tuple[int, float]]:
    found = {}
    for fop in sorted({fop for each in members for fop in each.fops}):
        if calls := _calls(members, fop):
            found[fop] = (calls, _total(members, fop) / calls)
    return found
