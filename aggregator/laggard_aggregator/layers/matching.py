"""Requests of adjacent layers matched by address, bytes, operation and time.

An upper request U and a lower request L with bytes in common are, in this order:
- *nested*: L was admitted and called back within U;
- *earlier*: L was admitted before U (read-ahead, an earlier read) and completed within it;
- *hit*: L was complete before U was admitted, nothing was left to wait for;
- *later*: L was admitted after U's callback (write-back).
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import ABSENT, READ, WRITE, Ints, RequestColumns
from laggard_aggregator.layers.interval_index import (
    FAR,
    KeyedTimes,
    first_at_or_after,
    last_at_or_before,
    nested_by_key,
)

_MOST_CELLS = 20_000_000
"""Cells of upper requests at a time."""
_MOST_LOWER_CELLS = 50_000_000


class MatchKind(IntEnum):
    """Relation of an upper request to the lower ones; `NONE`: no lower request has any of its bytes."""

    NONE = 0
    NESTED = 1
    EARLIER = 2
    HIT = 3
    LATER = 4
    PARTIAL = 5
    """Some of its bytes have a lower request, others have none."""
    HOLE = 6
    """Its bytes have no place below, such as a hole in a file."""


@dataclass(slots=True)
class Matching:
    """Outcome for two layers. `kind`: of each upper request. `upper`, `lower`: matched pairs, with
    `pair_kind`.

    `by`: how requests were identified: `address`, `thread`, `size` or `none`. `refused`: reason for having
    only the pairs of equal ranges, or empty.
    """

    kind: NDArray[np.int8]
    upper: Ints
    lower: Ints
    pair_kind: NDArray[np.int8]
    by: str
    lower_count: int
    refused: str = ""

    def share(self, kind: MatchKind) -> float:
        """Share of the upper requests of this kind."""
        return float((self.kind == kind).mean()) if len(self.kind) else 0.0

    def explained(self) -> NDArray[np.bool_]:
        """Mask of the lower requests that some upper request explains."""
        explained = np.zeros(self.lower_count, np.bool_)
        explained[self.lower] = True
        return explained


@dataclass(slots=True)
class Pieces:
    """Byte ranges of requests in one linear address space; a request may have several. `owner`: the
    request.
    """

    owner: Ints
    start: Ints
    end: Ints


def whole(columns: RequestColumns) -> Pieces:
    """One piece a request: the bytes that it asked for, in its own space."""
    owner = np.flatnonzero((columns.start >= 0) & (columns.size > 0))
    return Pieces(owner, columns.start[owner], columns.start[owner] + columns.size[owner])


def _linear(upper: RequestColumns, lower: RequestColumns, u: Pieces, low: Pieces) -> None:
    """Moves the pieces of each space behind those of the one before, so that an address is one number."""
    spaces = np.concatenate([upper.space[u.owner], lower.space[low.owner]]).astype(np.int64)
    ends = np.concatenate([u.end, low.end])
    if not len(spaces):
        return
    known, inverse = np.unique(spaces, return_inverse=True)
    if len(known) == 1:
        return
    most = np.zeros(len(known), np.int64)
    np.maximum.at(most, inverse, ends)
    if float(most.astype(np.float64).sum()) > 2.0**62:
        _compress(u, low)
        ends = np.concatenate([u.end, low.end])
        most[:] = int(ends.max())
    base = np.concatenate([[0], np.cumsum(most)[:-1]])
    shift = base[inverse]
    u.start, u.end = u.start + shift[: len(u.owner)], u.end + shift[: len(u.owner)]
    low.start, low.end = low.start + shift[len(u.owner) :], low.end + shift[len(u.owner) :]


def _compress(u: Pieces, low: Pieces) -> None:
    """Replaces addresses by their ranks, which keeps order and equality."""
    stacked = np.concatenate([u.start, u.end, low.start, low.end])
    _, ranks = np.unique(stacked, return_inverse=True)
    a, b = len(u.start), len(low.start)
    u.start, u.end = ranks[:a], ranks[a : 2 * a]
    low.start, low.end = ranks[2 * a : 2 * a + b], ranks[2 * a + b :]


def match_by_address(
    upper: RequestColumns, lower: RequestColumns, pieces: Pieces | None = None, holes: Ints | None = None
) -> Matching:
    """Matches requests of one address space.

    `pieces`: byte ranges of the upper requests where the lower layer has them, if they are not their own.
    `holes`: bytes of each upper request that have no place below.
    """
    u = whole(upper) if pieces is None else pieces
    low = whole(lower)
    if pieces is None:
        _linear(upper, lower, u, low)
    pair_u, pair_l = _exact(upper, lower, u, low)
    refused = ""
    cells = _overlapping(upper, lower, u, low, pair_u)
    if cells is None:
        refused = f"more than {_MOST_LOWER_CELLS:,} overlaps of the requests' ranges"
        cells = _no_overlaps(len(upper))
    kind = cells.kinds
    done = u.owner[pair_u] if len(pair_u) else pair_u
    if pieces is None:
        kind[done] = MatchKind.NESTED
    if holes is not None:
        kind[(kind == MatchKind.NONE) & (holes > 0)] = MatchKind.HOLE
    exact_pairs = (u.owner[pair_u], low.owner[pair_l])
    return Matching(
        kind=kind,
        upper=np.concatenate([exact_pairs[0], cells.upper]),
        lower=np.concatenate([exact_pairs[1], cells.lower]),
        pair_kind=np.concatenate([np.full(len(pair_u), MatchKind.NESTED, np.int8), cells.pair_kind]),
        by="address",
        lower_count=len(lower),
        refused=refused,
    )


def _too_intricate(bounds: Ints, u: Pieces, low: Pieces, left: Ints) -> bool:
    """True for ranges that overlap so often that cutting them at all bounds needs too much memory."""
    if int(_widths(bounds, low.start, low.end).sum()) > _MOST_LOWER_CELLS:
        return True
    return int(_widths(bounds, u.start[left], u.end[left]).max(initial=0)) > _MOST_CELLS


def _widths(bounds: Ints, start: Ints, end: Ints) -> Ints:
    """Number of cells of each range."""
    widths: Ints = np.searchsorted(bounds, end) - np.searchsorted(bounds, start)
    return widths


def _no_overlaps(count: int) -> "_CellOutcome":
    empty = np.zeros(0, np.int64)
    return _CellOutcome(np.zeros(count, np.int8), empty, empty, empty.astype(np.int8))


def _exact(upper: RequestColumns, lower: RequestColumns, u: Pieces, low: Pieces) -> tuple[Ints, Ints]:
    """Pieces of the same range and operation, one to one, the lower nested in the upper.

    First by the same thread where both layers have it, as two requests for one range may overlap in time.
    """
    key_u = request_keys(upper.operation[u.owner], u.start, u.end)
    key_l = request_keys(lower.operation[low.owner], low.start, low.end)
    left_u, left_l = np.arange(len(key_u)), np.arange(len(key_l))
    pairs_u, pairs_l = [], []
    for with_thread in (True, False):
        ku, kl = key_u[left_u], key_l[left_l]
        if with_thread:
            tu, tl = upper.thread[u.owner[left_u]], lower.thread[low.owner[left_l]]
            ku, kl = ku * MIX + tu.astype(np.uint64), kl * MIX + tl.astype(np.uint64)
        of_u, of_l = u.owner[left_u], low.owner[left_l]
        at_u, at_l = nested_by_key(
            KeyedTimes(ku, upper.begin_ns[of_u], until(upper)[of_u]),
            KeyedTimes(kl, lower.begin_ns[of_l], until(lower)[of_l]),
        )
        found_u, found_l = left_u[at_u], left_l[at_l]
        same = (u.start[found_u] == low.start[found_l]) & (u.end[found_u] == low.end[found_l])
        pairs_u.append(found_u[same])
        pairs_l.append(found_l[same])
        left_u = np.setdiff1d(left_u, pairs_u[-1], assume_unique=True)
        left_l = np.setdiff1d(left_l, pairs_l[-1], assume_unique=True)
    return np.concatenate(pairs_u), np.concatenate(pairs_l)


MIX = np.uint64(0x9E3779B97F4A7C15)


def request_keys(operation: NDArray[np.int8], start: Ints, end: Ints) -> NDArray[np.uint64]:
    """Mixed keys; equal requests have equal keys, and pairs are compared in full afterwards."""
    key = start.astype(np.uint64) * MIX
    key ^= key >> np.uint64(29)
    key = (key + end.astype(np.uint64)) * MIX
    key ^= key >> np.uint64(32)
    return key + operation.astype(np.uint64)


def until(columns: RequestColumns) -> Ints:
    """Ends; an unfinished request lasts for ever."""
    end = columns.end
    return np.where(end == ABSENT, FAR, end)


@dataclass(slots=True)
class _CellOutcome:
    """Outcome of the matching by cells."""

    kinds: NDArray[np.int8]
    upper: Ints
    lower: Ints
    pair_kind: NDArray[np.int8]


def _overlapping(
    upper: RequestColumns, lower: RequestColumns, u: Pieces, low: Pieces, exact: Ints
) -> _CellOutcome | None:
    """Kinds of all upper requests, and pairs of those pieces that have no exact match.

    Ranges are cut at all starts and ends: in the cells between, a piece covers all or nothing. None where
    that would be too many cells.
    """
    left = np.setdiff1d(np.arange(len(u.owner)), exact, assume_unique=True)
    tally = _KindTally(len(upper))
    tally.count(u.owner[exact], np.full(len(exact), MatchKind.NESTED, np.int8))
    pairs: list[tuple[Ints, Ints, NDArray[np.int8]]] = []
    if len(left):
        bounds = np.unique(np.concatenate([u.start[left], u.end[left], low.start, low.end]))
        if _too_intricate(bounds, u, low, left):
            return None
        cells_l, of_l = _cells(bounds, low.start, low.end)
        of_l = low.owner[of_l]
        index = _CellIndex(cells_l, of_l, lower)
        widths = np.searchsorted(bounds, u.end[left]) - np.searchsorted(bounds, u.start[left])
        for chunk in _chunks(widths):
            chosen = left[chunk]
            cells_u, of_u = _cells(bounds, u.start[chosen], u.end[chosen])
            owner = u.owner[chosen[of_u]]
            kind, lower_at = index.find(cells_u, owner, upper)
            tally.count(owner, kind)
            hit = lower_at >= 0
            pairs.append(_distinct(owner[hit], lower_at[hit], kind[hit], len(lower)))
    empty = np.zeros(0, np.int64)
    return _CellOutcome(
        kinds=tally.kinds(),
        upper=np.concatenate([p[0] for p in pairs] or [empty]),
        lower=np.concatenate([p[1] for p in pairs] or [empty]),
        pair_kind=np.concatenate([p[2] for p in pairs] or [empty.astype(np.int8)]),
    )


def _chunks(widths: Ints) -> list[Ints]:
    """Indexes in runs of at most `_MOST_CELLS` cells."""
    block = np.cumsum(widths) // _MOST_CELLS
    cuts = np.flatnonzero(np.diff(block)) + 1
    return np.split(np.arange(len(widths)), cuts)


def _cells(bounds: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Cells of each range, and which range each is of."""
    low = np.searchsorted(bounds, start)
    counts = np.searchsorted(bounds, end) - low
    owner = np.repeat(np.arange(len(start)), counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return low[owner] + within, owner


def _distinct(
    owner: Ints, lower_at: Ints, kind: NDArray[np.int8], lower_count: int
) -> tuple[Ints, Ints, NDArray[np.int8]]:
    _, first = np.unique(owner * max(1, lower_count) + lower_at, return_index=True)
    return owner[first], lower_at[first], kind[first]


class _CellIndex:
    """Lower requests by cell and time of admission, one index an operation."""

    def __init__(self, cells: Ints, row: Ints, lower: RequestColumns) -> None:
        self._begin, self._end = lower.begin_ns, until(lower)
        self._by_operation: dict[int, tuple[NDArray[np.uint64], Ints]] = {}
        operation = lower.operation[row]
        for op in (READ, WRITE):
            chosen = np.flatnonzero(operation == op)
            order = chosen[np.lexsort((self._begin[row[chosen]], cells[chosen]))]
            self._by_operation[op] = (cells[order].astype(np.uint64), row[order])

    def find(self, cells: Ints, owner: Ints, upper: RequestColumns) -> tuple[NDArray[np.int8], Ints]:
        """Kind and lower request of each cell of the upper requests."""
        kind = np.zeros(len(cells), np.int8)
        rows = np.full(len(cells), -1, np.int64)
        begin, end = upper.begin_ns[owner], until(upper)[owner]
        operation = upper.operation[owner]
        for op in (READ, WRITE):
            chosen = np.flatnonzero(operation == op)
            if not len(chosen):
                continue
            a, b, c = cells[chosen].astype(np.uint64), begin[chosen], end[chosen]
            kinds, at = self._of_operation(op, a, b, c)
            kind[chosen], rows[chosen] = kinds, at
        return kind, rows

    def _of_operation(
        self, op: int, cell: NDArray[np.uint64], begin: Ints, end: Ints
    ) -> tuple[NDArray[np.int8], Ints]:
        keys, row = self._by_operation[op]
        kind = np.zeros(len(cell), np.int8)
        rows = np.full(len(cell), -1, np.int64)
        before = np.full(len(cell), -1, np.int64)
        if len(keys):
            before = last_at_or_before(keys, self._begin[row], cell, begin - 1)
            first = first_at_or_after(keys, self._begin[row], cell, begin)
            has = first >= 0
            at = row[first[has]]
            admitted = self._begin[at]
            nested = admitted <= end[has]
            if op == READ:
                hits = np.flatnonzero(has)[nested]
                kind[hits], rows[hits] = MatchKind.NESTED, at[nested]
            else:
                places = np.flatnonzero(has)
                kind[places] = np.where(nested, MatchKind.NESTED, MatchKind.LATER)
                rows[places] = at
        if op == READ:
            self._earlier(kind, rows, before, row, begin)
            self._from_writes(kind, cell, end)
        return kind, rows

    def _earlier(self, kind: NDArray[np.int8], rows: Ints, before: Ints, row: Ints, begin: Ints) -> None:
        open_ = np.flatnonzero((kind == MatchKind.NONE) & (before >= 0))
        at = row[before[open_]]
        kind[open_] = np.where(self._end[at] <= begin[open_], MatchKind.HIT, MatchKind.EARLIER)
        rows[open_] = at

    def _from_writes(self, kind: NDArray[np.int8], cell: NDArray[np.uint64], end: Ints) -> None:
        """Reads of blocks that were written below before: they are in the cache."""
        keys, row = self._by_operation[WRITE]
        open_ = np.flatnonzero(kind == MatchKind.NONE)
        if not len(open_) or not len(keys):
            return
        last = last_at_or_before(keys, self._begin[row], cell[open_], end[open_])
        kind[open_[last >= 0]] = MatchKind.HIT


class _KindTally:
    """Cells of each upper request by kind."""

    def __init__(self, count: int) -> None:
        self._seen = {
            kind: np.zeros(count, np.int32)
            for kind in (MatchKind.NONE, MatchKind.NESTED, MatchKind.EARLIER, MatchKind.HIT, MatchKind.LATER)
        }

    def count(self, owner: Ints, kind: NDArray[np.int8]) -> None:
        """Adds cells."""
        for kind_seen in self._seen:
            of_kind = owner[kind == kind_seen]
            if len(of_kind):
                counts = np.bincount(of_kind, minlength=len(self._seen[kind_seen]))
                self._seen[kind_seen] += counts.astype(np.int32)

    def kinds(self) -> NDArray[np.int8]:
        """The kind of each request: nested only when all its bytes are, a hit only when all are complete."""
        none, nested, earlier, hit, later = self._seen.values()
        some = (nested > 0) | (earlier > 0) | (hit > 0) | (later > 0)
        kind = np.where(later > 0, MatchKind.LATER, MatchKind.NONE).astype(np.int8)
        kind[nested > 0] = MatchKind.NESTED
        kind[hit > 0] = MatchKind.HIT
        kind[(earlier > 0) | ((hit > 0) & (nested > 0))] = MatchKind.EARLIER
        kind[some & (none > 0)] = MatchKind.PARTIAL
        return kind
