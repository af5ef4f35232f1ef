"""Small requests of a file, counted in Darshan's bins of sizes and its lists of common sizes.

A read at the end of a file returns nothing and counts in the smallest bin, as does a collective call to which
a rank contributes nothing: requests that moved no bytes are no small ones.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan.tables import SMALL_BINS, SMALL_BYTES

Counts = NDArray[np.int64]
_KINDS: Final = ("READ", "WRITE")
_COMMON_SIZES: Final = 4
_FIRST_BIN_BYTES: Final = 100


def small_requests(counters: Mapping[str, Counts], suffix: str = "") -> dict[str, Counts]:
    """`small_reads` and `small_writes` (R,): requests below 1 MiB that moved bytes.

    `suffix`: that of the names of the bins, `AGG_` of MPI-IO. Darshan's bin below 1 MiB holds those of 1 MiB
    too; its list of common sizes counts them.
    """
    bins = {
        kind: [np.maximum(counters[f"SIZE_{kind}_{suffix}{size}"], 0) for size in SMALL_BINS]
        for kind in _KINDS
    }
    exact = _of_size(counters, SMALL_BYTES, SMALL_BYTES)
    edge = {kind: sizes[-1] for kind, sizes in bins.items()}
    both = np.maximum(edge["READ"] + edge["WRITE"], 1)
    empty = _empty(counters, bins["READ"][0], bins["WRITE"][0])
    columns = {}
    for kind, column in (("READ", "small_reads"), ("WRITE", "small_writes")):
        not_small = np.minimum(edge[kind], np.rint(exact * (edge[kind] / both)).astype(np.int64))
        columns[column] = sum(bins[kind], np.zeros_like(exact)) - not_small - empty[kind]
    return columns


def _empty(counters: Mapping[str, Counts], reads: Counts, writes: Counts) -> dict[str, Counts]:
    """Requests (R,) among the smallest `reads` and `writes` that moved nothing.

    The list of common sizes counts those of size 0. It has four sizes only: of the smallest reads that it
    does not explain, one an open is taken for that at the end of the file. More are empty where the bytes do
    not suffice for one each.
    """
    counted = _of_size(counters, 0, 0)
    known = _of_size(counters, 1, _FIRST_BIN_BYTES)
    empty_reads = np.minimum(reads, counted)
    empty_writes = np.minimum(writes, counted - empty_reads)
    opens = counters.get("OPENS")
    if opens is not None:
        unknown = np.maximum(reads - empty_reads - np.maximum(known - writes, 0), 0)
        empty_reads = empty_reads + np.minimum(unknown, np.maximum(np.maximum(opens, 0) - counted, 0))
    for amount, own in (("READ", reads), ("WRITE", writes)):
        least = np.maximum(own - np.maximum(counters[_BYTES[amount]], 0), 0)
        if amount == "READ":
            empty_reads = np.maximum(empty_reads, least)
        else:
            empty_writes = np.maximum(empty_writes, least)
    return {"READ": empty_reads, "WRITE": empty_writes}


_BYTES: Final = {"READ": "BYTES_READ", "WRITE": "BYTES_WRITTEN"}


def _of_size(counters: Mapping[str, Counts], least: int, most: int) -> Counts:
    """Requests (R,) of `least` to `most` bytes in the list of common sizes."""
    total = np.zeros_like(counters["BYTES_READ"])
    for place in range(1, _COMMON_SIZES + 1):
        size, count = counters[f"ACCESS{place}_ACCESS"], counters[f"ACCESS{place}_COUNT"]
        total = total + np.where((size >= least) & (size <= most), np.maximum(count, 0), 0)
    return total
