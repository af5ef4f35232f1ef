"""I/O modes of a job by volume: N-N, N-M, N-1, 1-1, by the bytes that each process moved in each file.

| mode | (NSDI '19, section 3.2) |
|---|---|
| N-N | each process has a file of its own |
| N-M | N processes move the data of M files, M < N: files of a group of processes, or of an aggregator |
| N-1 | all share one file |
| 1-1 | one process alone on a file |

Counters alone do not tell: without traces the volume is *unknown*.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from laggard_common.wire.trace_records import Folded, direction_of

MODES = ("N-N", "N-M", "N-1", "1-1", "unknown")
_ALL = 0.9
"""Share of the processes that counts as all of them."""
_ALIKE = 4.0
"""Factor within which aggregators move about the same."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Bytes that one process moved in one file, read or write. `rank`, `file`: empty when unknown.

    `processes`: of a record that several of them have in common; `rank` then names the record.
    """

    rank: str
    file: str
    direction: str
    size: int
    processes: int = 1


_Sharer = tuple[str, int]
"""Rank and number of processes of an access."""


@dataclass(frozen=True, slots=True)
class ModeShares:
    """Modes of one direction. `shares`: of `size`, by mode, all of MODES; `files`: M of the N-M part."""

    size: int
    shares: Mapping[str, float]
    files: int

    @property
    def mode(self) -> str:
        """The mode of the most bytes, `mixed` where it has less than nine tenths."""
        mode, share = max(self.shares.items(), key=lambda item: item[1])
        return mode if share >= _ALL else "mixed"


def io_modes(accesses: Iterable[FileAccess], processes: int | None = None) -> dict[str, ModeShares]:
    """Modes by direction. `processes`: of the job; by default those that move any data."""
    volumes: dict[str, Counter[tuple[_Sharer, str]]] = defaultdict(Counter)
    ranks = set()
    for access in accesses:
        volumes[access.direction][(access.rank, access.processes), access.file] += access.size
        ranks.add(access.rank)
    count = max(processes or 0, len(ranks - {""}))
    moving = {direction: sizes for direction, sizes in volumes.items() if any(sizes.values())}
    return {direction: _shares(sizes, count) for direction, sizes in moving.items()}


def folded_accesses(records: Iterable[Folded]) -> Iterator[FileAccess]:
    """Accesses of folded trace records, whose descriptors are `process:number` on a node.

    Those of Darshan DXT are `posix:rank:file`; its MPI-IO segments are left out, as the POSIX ones below them
    move the same bytes.
    """
    for record in records:
        direction = direction_of(record.operation)
        if direction and record.size > 0:
            process, colon, rest = record.descriptor.partition(":")
            if process == "mpiio":
                continue
            rank = f"{record.node}:{process}" if colon else ""
            if process == "posix":
                rank = rest.partition(":")[0]
            yield FileAccess(rank, record.path, direction, record.size * record.count)


def main_mode(modes: Mapping[str, ModeShares]) -> str:
    """The mode of nine tenths of the bytes of all directions, `mixed` without one, `none` without bytes."""
    sizes: Counter[str] = Counter()
    for own in modes.values():
        sizes.update({mode: round(own.size * share) for mode, share in own.shares.items()})
    mode, size = max(sizes.items(), key=lambda item: item[1], default=("none", 0))
    return mode if size >= _ALL * sum(sizes.values()) else "mixed"


def _shares(volumes: Mapping[tuple[_Sharer, str], int], processes: int) -> ModeShares:
    sizes: Counter[str] = Counter()
    groups: dict[str, dict[str, dict[_Sharer, int]]] = defaultdict(lambda: defaultdict(dict))
    for (sharer, file), size in volumes.items():
        if sharer[0] and file:
            groups[_NUMBER.sub("#", file)][file][sharer] = size
        else:
            sizes["unknown"] += size
    files = 0
    for group in groups.values():
        for mode, size, count in _of_group(group, processes):
            sizes[mode] += size
            files += count if mode == "N-M" else 0
    total = sum(sizes.values())
    return ModeShares(total, {mode: sizes[mode] / total for mode in MODES}, files)


def _of_group(group: Mapping[str, Mapping[_Sharer, int]], processes: int) -> Iterator[tuple[str, int, int]]:
    """Mode, bytes and number of files of the parts of a group of files that are named alike."""
    shared = [by_rank for by_rank in group.values() if _number(by_rank) > 1]
    partly = [by_rank for by_rank in shared if _number(by_rank) < _ALL * processes]
    for by_rank in shared:
        is_one_of_several = _number(by_rank) < _ALL * processes and len(partly) > 1
        yield "N-M" if is_one_of_several else "N-1", sum(by_rank.values()), 1
    own: dict[str, list[int]] = defaultdict(list)
    for by_rank in group.values():
        if _number(by_rank) == 1:
            (((rank, _), size),) = by_rank.items()
            own[rank].append(size)
    for layer in _layers(own):
        if len(layer) >= max(_ALL * processes, 2):
            yield "N-N", sum(layer), len(layer)
            continue
        usual = float(np.median(np.array(layer, dtype=np.float64)))
        alike = [size for size in layer if usual / _ALIKE <= size <= usual * _ALIKE]
        for size in layer if len(alike) < 2 else _set_apart(layer, usual):
            yield "1-1", size, 1
        if len(alike) > 1:
            yield "N-M", sum(alike), len(alike)


def _number(sharers: Iterable[_Sharer]) -> int:
    return sum(processes for _, processes in sharers)


def _set_apart(layer: list[int], usual: float) -> list[int]:
    """The sizes that are not alike: files of one process that have nothing to do with aggregators."""
    return [size for size in layer if not usual / _ALIKE <= size <= usual * _ALIKE]


def _layers(own: Mapping[str, list[int]]) -> Iterator[list[int]]:
    """Sizes of files that one process has for itself, a file of each process in a layer.

    A file beyond those that all have is 1-1. Of a process with more files than others, those most like the
    files of the others come first.
    """
    usual = float(np.median([math.log1p(size) for sizes in own.values() for size in sizes])) if own else 0.0
    ordered = [sorted(sizes, key=lambda size: abs(math.log1p(size) - usual)) for sizes in own.values()]
    for place in range(max(map(len, ordered), default=0)):
        yield [sizes[place] for sizes in ordered if place < len(sizes)]
