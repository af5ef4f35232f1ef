"""Intervals and instants found by key and time: the last before, the first after, one in another."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.layers.columns import Ints

MOST_ROUNDS = 64
FAR = np.iinfo(np.int64).max
"""End of an unfinished request."""


@dataclass(frozen=True, slots=True)
class KeyedTimes:
    """Begin and end of requests, ns, each with a key."""

    key: NDArray[np.uint64]
    begin_ns: Ints
    end: Ints


def nested_by_key(upper: KeyedTimes, lower: KeyedTimes) -> tuple[Ints, Ints]:
    """Pairs, one to one, of equal keys whose lower interval lies in the upper one: the upper that ends first.

    Upper requests without an end are tried from the latest that began before. Of several lower candidates of
    an upper one the earliest gets it, the others try the next.
    """
    empty = np.zeros(0, np.int64)
    key_u, begin_u, end_u = upper.key, upper.begin_ns, upper.end
    key_l, begin_l, end_l = lower.key, lower.begin_ns, lower.end
    if not len(key_u) or not len(key_l):
        return empty, empty
    endless = bool((end_u == FAR).all())
    if endless:
        order_u, step = np.lexsort((begin_u, key_u)), -1
        candidate = last_at_or_before(key_u[order_u], begin_u[order_u], key_l, begin_l)
    else:
        order_u, step = np.lexsort((end_u, key_u)), 1
        candidate = first_at_or_after(key_u[order_u], end_u[order_u], key_l, end_l)
    taken = np.zeros(len(order_u), np.bool_)
    waiting = np.flatnonzero(candidate >= 0)
    waiting, candidate = _of_order(waiting, candidate[waiting], begin_l)
    found_u, found_l = [], []
    for _ in range(MOST_ROUNDS):
        if not len(waiting):
            break
        at = order_u[candidate]
        fits = ~taken[candidate] & (begin_u[at] <= begin_l[waiting]) & (end_u[at] >= end_l[waiting])
        proposed = np.flatnonzero(fits)
        _, first = np.unique(candidate[proposed], return_index=True)
        won = proposed[first]
        taken[candidate[won]] = True
        found_u.append(at[won])
        found_l.append(waiting[won])
        rest = np.ones(len(waiting), np.bool_)
        rest[won] = False
        waiting, candidate = waiting[rest], candidate[rest] + step
        alive = (candidate >= 0) & (candidate < len(order_u))
        alive[alive] = key_u[order_u[candidate[alive]]] == key_l[waiting[alive]]
        waiting, candidate = waiting[alive], candidate[alive]
    return np.concatenate(found_u or [empty]), np.concatenate(found_l or [empty])


def _of_order(waiting: Ints, candidate: Ints, begin: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(begin[waiting], kind="stable")
    return waiting[order], candidate[order]


def first_at_or_after(key: NDArray[np.uint64], time: Ints, key_of: NDArray[np.uint64], at: Ints) -> Ints:
    """For each query the first position of sorted (key, time) with the same key and a time >= `at`; else
    -1.
    """
    first = last_at_or_before(key, time, key_of, at - 1) + 1
    missing = first == 0
    first[missing] = np.searchsorted(key, key_of[missing])
    good = first < len(key)
    good[good] = key[first[good]] == key_of[good]
    return np.where(good, first, -1)


def last_at_or_before(key: NDArray[np.uint64], time: Ints, key_of: NDArray[np.uint64], at: Ints) -> Ints:
    """For each query the last position of sorted (key, time) with the same key and a time <= `at`; else
    -1.
    """
    is_query = np.zeros(len(key) + len(key_of), np.int8)
    is_query[len(key) :] = 1
    order = np.lexsort((is_query, np.concatenate([time, at]), np.concatenate([key, key_of])))
    queries = order >= len(key)
    which = order[queries] - len(key)
    order[queries] = -1
    candidates = np.maximum.accumulate(order, out=order)[queries]
    del order, queries, is_query  # millions of rows
    places = np.full(len(key_of), -1, np.int64)
    good = candidates >= 0
    good[good] = key[candidates[good]] == key_of[which[good]]
    places[which] = np.where(good, candidates, -1)
    return places
