"""Rules that compare the OSTs, ranks and nodes of one job with each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.mining.findings import MIB, MIN_SHARE, IoFinding, NotJudged, done, rate, seconds
from laggard_aggregator.mining.job_tables import ALL_RANKS, Accesses, JobTables, integers, texts
from laggard_aggregator.mining.peers import MIN_PEERS, MIN_RATIO, PeerRatios, compared
from laggard_aggregator.status.formatting import counted

MIN_SHARED_SCORE: Final = 10.0
"""Standard deviations of the other ranks by which the slowest rank of a shared file must exceed their
mean."""
IMBALANCE: Final = 2.0
"""Times the bytes of the median rank that make a rank's share of the work uneven."""
_MICROS: Final = 1e6


@dataclass(frozen=True, slots=True)
class _PeerMembers:
    """Members that are compared; `of` (R,): member of each record, or -1."""

    names: Sequence[str]
    of: NDArray[np.int64]


def straggler_findings(
    tables: JobTables, accesses: Accesses, nodes: dict[int, str]
) -> Iterator[IoFinding | NotJudged]:
    """Slow OSTs; slow ranks and nodes where no OST explains them. `nodes`: by rank, as far as known."""
    explained = np.zeros(accesses.bytes.size, np.bool_)
    for found, of in _osts(tables, accesses):
        if isinstance(found, IoFinding):
            explained |= of
        yield found
    yield from _nodes(tables, accesses, nodes, explained)
    yield from _ranks(tables, accesses, explained)
    yield from _shared(tables, accesses, explained)


def _osts(tables: JobTables, accesses: Accesses) -> Iterator[tuple[IoFinding | NotJudged, NDArray[np.bool_]]]:
    none = np.zeros(accesses.bytes.size, np.bool_)
    reason = _osts_not_judged(tables, accesses)
    if reason:
        yield NotJudged(tables.job_id, f"OSTs ({accesses.direction})", reason), none
        return
    mounts = texts(tables.osts, "mount")
    for mount in sorted(set(mounts)):
        files, osts, stripes = _placed(tables, mount, mounts)
        records, placed = _joined(accesses, files)
        if not records.size:
            continue
        numbers, member = np.unique(osts[placed], return_inverse=True)
        weight = 1.0 / np.maximum(stripes[placed], 1)
        times = np.bincount(member, weights=accesses.time_us[records] * weight).astype(np.float64)
        amounts = np.bincount(member, weights=accesses.bytes[records] * weight).astype(np.float64)
        ratios = compared(times, amounts)
        if ratios is None:
            osts_used = counted(int(numbers.size), "OST")
            reason = f"{osts_used} of {mount} had I/O, {MIN_PEERS} are needed to compare them"
            yield NotJudged(tables.job_id, f"OSTs ({accesses.direction})", reason), none
            continue
        if len({tuple(sorted(osts[files == each])) for each in np.unique(files)}) == 1:
            reason = f"all files of {mount} are on the same {numbers.size} OSTs, which cannot be told apart"
            yield NotJudged(tables.job_id, f"OSTs ({accesses.direction})", reason), none
            continue
        for place in np.flatnonzero(ratios.slow):
            of = none.copy()
            of[records[member == place]] = True
            found = _ost_finding(tables, accesses, ratios, int(place), ost=int(numbers[place]), of=of)
            if found is not None:
                yield found, of


def _osts_not_judged(tables: JobTables, accesses: Accesses) -> str | None:
    if accesses.module != "POSIX":
        return f"{accesses.module} records have no stripes"
    if not len(tables.osts):
        return "the log has no LUSTRE module: the OSTs of its files are unknown"
    return None


def _placed(
    tables: JobTables, mount: str, mounts: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """File, OST and stripe count of each row of a mount."""
    rows = tables.osts.filter(pa.array([each == mount for each in mounts]))
    keys = np.stack([integers(rows, name) for name in ("file_id", "ost", "stripes")], axis=1)
    unique = np.unique(keys, axis=0)  # several logs name the same file
    return unique[:, 0], unique[:, 1], unique[:, 2]


def _joined(accesses: Accesses, files: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of a record with I/O and a row of its file in `files`, which is sorted."""
    active = np.flatnonzero((accesses.bytes > 0) & (accesses.time_us > 0))
    first = np.searchsorted(files, accesses.file_id[active], "left")
    count = np.searchsorted(files, accesses.file_id[active], "right") - first
    records = np.repeat(active, count)
    within = np.arange(records.size) - np.repeat(np.cumsum(count) - count, count)
    return records, np.repeat(first, count) + within


def _ost_finding(
    tables: JobTables, accesses: Accesses, ratios: PeerRatios, place: int, *, ost: int, of: NDArray[np.bool_]
) -> IoFinding | None:
    sole = accesses.sole_us(of)
    share = sole / accesses.busy_us if accesses.busy_us else 0.0
    if share < MIN_SHARE:
        return None
    others = ratios.median_of_others(place) * _MICROS / MIB
    own = float(ratios.speed[place]) * _MICROS / MIB
    files = int(np.unique(accesses.file_id[of]).size)
    stripes = float(np.median(accesses.stripes[of]))
    took = float(np.median(accesses.time_us[of & (accesses.time_us > 0)]))
    text = (
        f"OST {ost} {done(accesses.direction)} at {rate(own)} MiB/s where the other {ratios.members - 1} "
        f"OSTs "
        f"{done(accesses.direction)} at a median of {rate(others)}: for {seconds(sole)} of "
        f"{seconds(accesses.busy_us)} s the job "
        f"waited for it alone. {files:,} file{'s were' if files > 1 else ' was'} on it, and took a median "
        f"of {seconds(took)} s."
    )
    advice = f"Ask the operators to look at OST {ost}"
    advice += (
        "; striping over more OSTs would not have helped."
        if stripes < 2
        else f"; fewer stripes than {stripes:.0f} a file would have kept more files off it."
    )
    return IoFinding(
        tables.job_id, accesses.direction, "ost", f"OST{ost}", float(ratios.ratio[place]), share, text, advice
    )


def _members(
    accesses: Accesses, group: _PeerMembers
) -> tuple[PeerRatios | None, NDArray[np.float64], NDArray[np.float64]]:
    used = (group.of >= 0) & (accesses.bytes > 0) & (accesses.time_us > 0)
    size = len(group.names)
    times = np.bincount(group.of[used], weights=accesses.time_us[used], minlength=size).astype(np.float64)
    amounts = np.bincount(group.of[used], weights=accesses.bytes[used], minlength=size).astype(np.float64)
    return compared(times, amounts), times, amounts


def _ranks(
    tables: JobTables, accesses: Accesses, explained: NDArray[np.bool_]
) -> Iterator[IoFinding | NotJudged]:
    own = np.where((accesses.rank > ALL_RANKS) & ~explained & (accesses.bytes > 0), accesses.rank, ALL_RANKS)
    if len(tables.logs) > 1:
        return  # a log a process: their ranks are all 0
    ranks, of = np.unique(own, return_inverse=True)
    of = of - 1 if ranks.size and ranks[0] == ALL_RANKS else of
    ranks = ranks[ranks > ALL_RANKS]
    if not ranks.size:
        if (
            accesses.timed.size
            and (accesses.rank[accesses.timed] == ALL_RANKS).all()
            and tables.processes > 1
        ):
            reason = "all files were shared by all ranks: of each only the slowest rank is recorded"
            yield NotJudged(tables.job_id, f"ranks ({accesses.direction})", reason)
        return
    ratios, times, amounts = _members(accesses, _PeerMembers([str(rank) for rank in ranks], of))
    if ratios is None:
        return
    for place in np.flatnonzero(ratios.slow):
        is_own = of == place
        sole = accesses.sole_us(is_own)
        share = sole / accesses.busy_us if accesses.busy_us else 0.0
        if share < MIN_SHARE:
            continue
        text = (
            f"Rank {ranks[place]} {done(accesses.direction)} at "
            f"{rate(ratios.speed[place] * _MICROS / MIB)} MiB/s where the "
            f"other {ratios.members - 1:,} ranks had a median of "
            f"{rate(ratios.median_of_others(int(place)) * _MICROS / MIB)}: the job waited {seconds(sole)} of "
            f"{seconds(accesses.busy_us)} s for it alone."
        )
        advice = "Look at the node of this rank: its network link, memory, and other work on it."
        yield IoFinding(
            tables.job_id,
            accesses.direction,
            "rank",
            f"rank {ranks[place]}",
            float(ratios.ratio[place]),
            share,
            text,
            advice,
        )
    yield from _uneven(tables, accesses, ranks, of, times=times, amounts=amounts, ratios=ratios)


def _uneven(
    tables: JobTables,
    accesses: Accesses,
    ranks: NDArray[np.int64],
    of: NDArray[np.int64],
    *,
    times: NDArray[np.float64],
    amounts: NDArray[np.float64],
    ratios: PeerRatios,
) -> Iterator[IoFinding]:
    """The one rank that moved far more bytes than the others, at their speed, and so took the time."""
    place = int(np.argmax(times))
    others = float(np.median(np.delete(amounts, place)))
    if ratios.slow[place] or amounts[place] < IMBALANCE * max(others, 1.0):
        return
    is_own = of == place
    share = accesses.sole_us(is_own) / accesses.busy_us if accesses.busy_us else 0.0
    if share < MIN_SHARE:
        return
    text = (
        f"Rank {ranks[place]} {done(accesses.direction)} {amounts[place] / MIB:,.0f} MiB where the other "
        f"ranks "
        f"{done(accesses.direction)} a median of {others / MIB:,.3g} MiB: {share:.0%} of the time it was "
        f"alone."
    )
    advice = (
        "Spread the data over the ranks, or use collective I/O (H5FD_MPIO_COLLECTIVE, MPI_File_write_all)."
    )
    yield IoFinding(
        tables.job_id,
        accesses.direction,
        "imbalance",
        f"rank {ranks[place]}",
        float(amounts[place] / max(others, 1.0)),
        share,
        text,
        advice,
    )


def _nodes(
    tables: JobTables, accesses: Accesses, nodes: dict[int, str], explained: NDArray[np.bool_]
) -> Iterator[IoFinding]:
    names = sorted(set(nodes.values()))
    if len(names) < MIN_PEERS or len(tables.logs) > 1:
        return
    number = {name: place for place, name in enumerate(names)}
    of_rank = {rank: number[name] for rank, name in nodes.items()}
    of = np.array([of_rank.get(int(rank), -1) for rank in accesses.rank], np.int64)
    of[explained] = -1
    ratios, _, _ = _members(accesses, _PeerMembers(names, of))
    if ratios is None:
        return
    for place in np.flatnonzero(ratios.slow):
        is_own = of == place
        if np.unique(accesses.rank[is_own]).size < 2:
            continue  # a rank alone is named as a rank
        sole = accesses.sole_us(is_own)
        share = sole / accesses.busy_us if accesses.busy_us else 0.0
        if share < MIN_SHARE:
            continue
        explained |= is_own
        name = names[place]
        text = (
            f"Node {name} {done(accesses.direction)} at {rate(ratios.speed[place] * _MICROS / MIB)} MiB/s "
            f"a rank where the other "
            f"{ratios.members - 1:,} nodes had a median of "
            f"{rate(ratios.median_of_others(int(place)) * _MICROS / MIB)}: "
            f"the job waited {seconds(sole)} of {seconds(accesses.busy_us)} s for it alone."
        )
        yield IoFinding(
            tables.job_id,
            accesses.direction,
            "node",
            name,
            float(ratios.ratio[place]),
            share,
            text,
            f"Ask the operators to look at {name}; exclude it from the next run (sbatch --exclude={name}).",
        )


def _shared(tables: JobTables, accesses: Accesses, explained: NDArray[np.bool_]) -> Iterator[IoFinding]:
    """The slowest rank of a file that all ranks shared, where it stands out of the others and had no more
    bytes."""
    rows = accesses.rows
    if not len(rows) or not accesses.busy_us:
        return
    worst: IoFinding | None = None
    slowest_us, slowest_bytes = integers(rows, "slowest_time_us"), integers(rows, "slowest_bytes")
    slowest_rank = integers(rows, "slowest_rank")
    variance = np.nan_to_num(rows["time_variance"].to_numpy())
    total_bytes = integers(rows, "bytes_read", 0) + integers(rows, "bytes_written", 0)
    total_us = accesses.meta_us + integers(rows, "read_time_us", 0) + integers(rows, "write_time_us", 0)
    for at in accesses.path.place:
        count = int(accesses.processes[at])
        if accesses.rank[at] != ALL_RANKS or explained[at] or count <= MIN_PEERS or slowest_us[at] <= 0:
            continue
        slow, mean = slowest_us[at] / _MICROS, total_us[at] / _MICROS / count
        others = (mean * count - slow) / (count - 1)
        squares = max(
            (count * (max(float(variance[at]), 0.0) + mean**2) - slow**2) / (count - 1) - others**2, 0.0
        )
        spread = max(float(np.sqrt(squares)), 0.05 * others, 1e-6)
        if others <= 0 or slow / others < MIN_RATIO or (slow - others) / spread < MIN_SHARED_SCORE:
            continue
        if slowest_bytes[at] > 1.5 * total_bytes[at] / count:
            continue
        share = min((slow - others) * _MICROS, accesses.busy_us) / accesses.busy_us
        if share < MIN_SHARE or (worst is not None and share <= worst.share):
            continue
        rank = int(slowest_rank[at])
        text = (
            f"Rank {rank} took {slow:.3g} s where the other {count - 1:,} ranks took a mean of "
            f"{others:.3g} s for as much "
            f"of a file that all share: about {share:.0%} of the time."
        )
        advice = "Look at the node of this rank: its network link, memory, and other work on it."
        worst = IoFinding(
            tables.job_id, accesses.direction, "rank", f"rank {rank}", slow / others, share, text, advice
        )
    if worst is not None:
        yield worst
