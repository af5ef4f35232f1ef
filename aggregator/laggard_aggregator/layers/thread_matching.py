"""Requests of adjacent layers matched without addresses: by thread and nesting, or by size and nesting."""

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import Ints, RequestColumns
from laggard_aggregator.layers.interval_index import MOST_ROUNDS, KeyedTimes, last_at_or_before, nested_by_key
from laggard_aggregator.layers.matching import MIX, Matching, MatchKind, request_keys, until


def match_by_thread(upper: RequestColumns, lower: RequestColumns) -> Matching:
    """Matches lower requests to the upper request of the same thread that they lie in, where no address
    is known.
    """
    key_u, key_l = (_thread_keys(columns) for columns in (upper, lower))
    begin_u, until_u, begin_l, until_l = upper.begin_ns, until(upper), lower.begin_ns, until(lower)
    order = np.lexsort((begin_u, key_u))
    candidate = last_at_or_before(key_u[order], begin_u[order], key_l, begin_l)
    waiting = np.flatnonzero(candidate >= 0)
    candidate = candidate[waiting]
    found_u, found_l = [], []
    for _ in range(MOST_ROUNDS):
        if not len(waiting):
            break
        at = order[candidate]
        fits = (begin_u[at] <= begin_l[waiting]) & (until_u[at] >= until_l[waiting])
        found_u.append(at[fits])
        found_l.append(waiting[fits])
        waiting, candidate = waiting[~fits], candidate[~fits] - 1
        alive = candidate >= 0
        alive[alive] = key_u[order[candidate[alive]]] == key_l[waiting[alive]]
        waiting, candidate = waiting[alive], candidate[alive]
    return _from_pairs(upper, lower, found_u, found_l, "thread")


def match_by_size(upper: RequestColumns, lower: RequestColumns) -> Matching:
    """Matches requests of the same operation and size by nesting, one to one, where nothing else is known."""
    key_u, key_l = (request_keys(c.operation, c.size, c.size) for c in (upper, lower))
    at_u, at_l = nested_by_key(
        KeyedTimes(key_u, upper.begin_ns, until(upper)), KeyedTimes(key_l, lower.begin_ns, until(lower))
    )
    return _from_pairs(upper, lower, [at_u], [at_l], "size")


def _from_pairs(
    upper: RequestColumns, lower: RequestColumns, found_u: list[Ints], found_l: list[Ints], by: str
) -> Matching:
    empty = np.zeros(0, np.int64)
    at_u, at_l = np.concatenate(found_u or [empty]), np.concatenate(found_l or [empty])
    kind = np.zeros(len(upper), np.int8)
    kind[at_u] = MatchKind.NESTED
    pair_kind = np.full(len(at_u), MatchKind.NESTED, np.int8)
    return Matching(kind, at_u, at_l, pair_kind, by, len(lower))


def _thread_keys(columns: RequestColumns) -> NDArray[np.uint64]:
    thread = np.where(columns.thread >= 0, columns.thread, -2)
    return thread.astype(np.uint64) * MIX + columns.process.astype(np.uint64)
