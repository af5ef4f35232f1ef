"""Rules that compare the OSTs, ranks and nodes of one job with each other."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan.findings import MIB, MIN_SHARE, IoFinding, NotJudged, done, rate, seconds
from laggard_aggregator.jobs.darshan.job_tables import ALL_RANKS, Accesses, JobTables, integers
from laggard_aggregator.jobs.darshan.peers import MIN_PEERS, MIN_RATIO, MIN_WORK, PeerRatios, compared
from laggard_aggregator.status.formatting import counted, plain

MIN_SHARED_SCORE: Final = 10.0
"""Standard deviations of the other ranks by which the slowest rank of a shared file exceeds their mean."""
IMBALANCE: Final = 2.0
"""Ratio to the bytes of the median rank from which a rank's work is uneven."""
_MOST: Final = int(1 / MIN_SHARE)
"""Members that can each have been waited for alone for MIN_SHARE of the time: their times do not overlap."""
_MICROS: Final = 1e6
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*", re.ASCII)
_ALIKE: Final = 1.5
"""Ratio to the mean bytes of a rank within which ranks did equal work on a shared file."""
_MAYBE_METADATA: Final = (
    "Its opens and stats may be the cause, as of the rank that writes a header: Darshan counts them in this "
    "time. If they are not, look at the node of this rank."
)
_OF_RANK: Final = "Look at the node of this rank: its network link, memory, and other work on it."

Judged = IoFinding | NotJudged


@dataclass(frozen=True, slots=True)
class _PeerMembers:
    """Members that are compared: records (P,) with I/O, each with its member and its part of the work.

    `kind`: ost, rank or node. `words`: the members as a plural, with their file system where they have one.
    """

    kind: str
    words: str
    names: Sequence[str]
    records: NDArray[np.int64]
    member: NDArray[np.int64]
    weight: NDArray[np.float64] | float = 1.0

    def kept(self, is_kept: NDArray[np.bool_]) -> "_PeerMembers":
        """Without some of the records (P,)."""
        weight = self.weight[is_kept] if isinstance(self.weight, np.ndarray) else self.weight
        records, member = self.records[is_kept], self.member[is_kept]
        return _PeerMembers(self.kind, self.words, self.names, records, member, weight)

    def sums(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum of the records' `values` (R,) by member."""
        weights = values[self.records] * self.weight
        sums: NDArray[np.float64] = np.bincount(self.member, weights, len(self.names)).astype(np.float64)
        return sums


def straggler_findings(tables: JobTables, accesses: Accesses, nodes: dict[int, str]) -> Iterator[Judged]:
    """Slow OSTs; slow ranks and nodes where no OST explains them. `nodes`: by rank, where known."""
    explained = np.zeros(accesses.bytes.size, np.bool_)
    for judge in (_osts(tables, accesses), _nodes(tables, accesses, nodes), _ranks(tables, accesses)):
        for group in judge:
            if isinstance(group, _PeerMembers):
                yield from _stragglers(tables, accesses, group, explained)
            else:
                yield group
    yield from _shared(tables, accesses, explained)


def _stragglers(
    tables: JobTables, accesses: Accesses, group: _PeerMembers, explained: NDArray[np.bool_]
) -> Iterator[Judged]:
    """The members that are slower than the others; their records become `explained`."""
    if group.kind != "ost":
        left = ~explained[group.records]
        group = group.kept(left)
    rule = f"{group.kind.replace('ost', 'OST')}s ({accesses.direction})"
    is_work = _is_work(accesses.bytes[group.records])
    if not is_work.all():
        reason = (
            f"{np.unique(group.records[~is_work]).size} of the records of {group.words} moved less than "
            f"{MIN_WORK:.0%} of the median record: calls, not bytes, make their time"
        )
        yield NotJudged(tables.job_id, rule, reason)
        group = group.kept(is_work)
    times, amounts = group.sums(accesses.time_us), group.sums(accesses.bytes)
    ratios = compared(times, amounts)
    if ratios is None:
        count = int(np.unique(group.member).size)
        reason = (
            f"only {count} of the {group.words} had I/O, {MIN_PEERS} are needed to compare them"
            if count < MIN_PEERS
            else f"fewer than {MIN_PEERS} of {count} {group.words} moved a similar amount"
        )
        yield NotJudged(tables.job_id, rule, reason)
        return
    if ratios.exceeding:
        reason = (
            f"{ratios.exceeding} of {ratios.members} {group.words} were slower than the others, "
            "more than a third: none of them is the exception"
        )
        yield NotJudged(tables.job_id, rule, reason)
    if ratios.idle:
        reason = f"{ratios.idle} of the {group.words} moved less than {MIN_WORK:.0%} of the median"
        yield NotJudged(tables.job_id, rule, reason)
    if group.kind == "ost":
        yield from _slow_osts(tables, accesses, group, ratios, explained)
        return
    slow = np.flatnonzero(ratios.slow)
    for place in slow[np.argsort(-times[slow], kind="stable")][:_MOST].tolist():
        chosen = np.zeros(accesses.bytes.size, np.bool_)
        chosen[group.records[group.member == place]] = True
        if group.kind == "node" and np.unique(accesses.rank[chosen]).size < 2:
            continue  # a rank alone is named as a rank
        finding = _straggler(tables, accesses, group, ratios, place, chosen)
        if finding is not None:
            explained |= chosen
            yield finding
    if group.kind == "rank":
        yield from _uneven(tables, accesses, group, ratios, times, amounts)


def _slow_osts(
    tables: JobTables,
    accesses: Accesses,
    group: _PeerMembers,
    ratios: PeerRatios,
    explained: NDArray[np.bool_],
) -> Iterator[Judged]:
    """The OSTs that are slow by themselves, the one that explains most slow files first.

    A file is as slow as the slowest of its OSTs, so an OST is slow beside one of them. What one OST explains
    is taken out before the next is looked for; an OST most of whose files are as fast as others is no reason.
    """
    for _ in range(_MOST):
        slow_files = _slow_files(accesses, group, ratios)
        candidates = [
            (-int(slow_files[own].sum()), -float(ratios.ratio[place]), place, own)
            for place in np.flatnonzero(ratios.slow).tolist()
            if 2 * slow_files[own := group.member == place].sum() > own.sum()
        ]
        if not candidates:
            return
        *_, place, own = min(candidates, key=lambda candidate: candidate[:3])
        chosen = np.zeros(accesses.bytes.size, np.bool_)
        chosen[group.records[own]] = True
        finding = _straggler(tables, accesses, group, ratios, place, chosen)
        if finding is not None:
            explained |= chosen
            yield finding
        group = group.kept(~chosen[group.records])
        rest = compared(group.sums(accesses.time_us), group.sums(accesses.bytes))
        if rest is None:
            return
        ratios = rest


def _slow_files(accesses: Accesses, group: _PeerMembers, ratios: PeerRatios) -> NDArray[np.bool_]:
    """Records (P,) of `group` that took MIN_RATIO times the time a byte of the median OST."""
    pace = float(np.nanmedian(1.0 / ratios.speed))
    took = accesses.time_us[group.records] / np.maximum(accesses.bytes[group.records], 1)
    is_slow: NDArray[np.bool_] = took >= MIN_RATIO * pace
    return is_slow


def _is_work(amounts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for amounts (P,) of at least MIN_WORK of their median."""
    is_work: NDArray[np.bool_] = amounts >= MIN_WORK * (float(np.median(amounts)) if amounts.size else 0.0)
    return is_work


def _straggler(  # noqa: PLR0917
    tables: JobTables,
    accesses: Accesses,
    group: _PeerMembers,
    ratios: PeerRatios,
    place: int,
    chosen: NDArray[np.bool_],
) -> IoFinding | None:
    waited = accesses.waited_us(chosen)
    share = waited / accesses.busy_us if accesses.busy_us else 0.0
    if share < MIN_SHARE:
        return None
    name, did = group.names[place], done(accesses.direction)
    own, others = (speed * _MICROS / MIB for speed in (ratios.speed[place], ratios.median_of_others(place)))
    many = {"ost": "OSTs", "rank": "ranks", "node": "nodes"}[group.kind]
    text = (
        f"{name} {did} at {rate(own)} MiB/s where the other {ratios.members - 1:,} {many} {did} at a median "
        f"of {rate(others)}: for up to {seconds(waited)} of {seconds(accesses.busy_us)} s the job waited for "
        "it alone."
    )
    component, advice = name, _OF_RANK
    if group.kind == "ost":
        component = name.replace(" ", "")
        files = int(np.unique(accesses.file_id[chosen]).size)
        took = float(np.median(accesses.time_us[chosen & (accesses.time_us > 0)]))
        were = "s were" if files > 1 else " was"
        text += f" {files:,} file{were} on it, and took a median of {seconds(took)} s."
        stripes = float(np.median(accesses.stripes[chosen]))
        advice = f"Ask the operators to look at {name}" + (
            "; striping over more OSTs would not have helped."
            if stripes < 2
            else f"; fewer stripes than {stripes:.0f} a file would have kept more files off it."
        )
    elif group.kind == "node":
        component = name.removeprefix("Node ")
        advice = f"Ask the operators to look at {component}"
        is_plain = _HOST_NAME.fullmatch(component) is not None
        advice += f"; exclude it from the next run (sbatch --exclude={component})." if is_plain else "."
    else:
        component = name.lower()
    ratio = float(ratios.ratio[place])
    return IoFinding(tables.job_id, accesses.direction, group.kind, component, ratio, share, text, advice)


def _uneven(  # noqa: PLR0917
    tables: JobTables,
    accesses: Accesses,
    group: _PeerMembers,
    ratios: PeerRatios,
    times: NDArray[np.float64],
    amounts: NDArray[np.float64],
) -> Iterator[IoFinding]:
    """The one rank that moved far more bytes than the others, at their speed, and so took the time."""
    place = int(np.argmax(times))
    others = float(np.median(np.delete(amounts, place)))
    if ratios.slow[place] or amounts[place] < IMBALANCE * max(others, 1.0):
        return
    chosen = np.zeros(accesses.bytes.size, np.bool_)
    chosen[group.records[group.member == place]] = True
    share = accesses.waited_us(chosen) / accesses.busy_us if accesses.busy_us else 0.0
    if share < MIN_SHARE:
        return
    name, did = group.names[place], done(accesses.direction)
    text = (
        f"{name} {did} {amounts[place] / MIB:,.0f} MiB where the other ranks {did} a median of "
        f"{others / MIB:,.3g} MiB: up to {share:.0%} of the time it was alone."
    )
    advice = (
        "Spread the data over the ranks, or use collective I/O (H5FD_MPIO_COLLECTIVE, MPI_File_write_all)."
    )
    factor = float(amounts[place] / max(others, 1.0))
    yield IoFinding(tables.job_id, accesses.direction, "imbalance", name.lower(), factor, share, text, advice)


def _osts(tables: JobTables, accesses: Accesses) -> Iterator[NotJudged | _PeerMembers]:
    rule = f"OSTs ({accesses.direction})"
    if accesses.module != "POSIX":
        yield NotJudged(tables.job_id, rule, f"{accesses.module} records have no stripes")
        return
    if not len(tables.osts) and "LUSTRE" not in tables.modules:
        reason = "the log has no LUSTRE module: the OSTs of its files are unknown"
        yield NotJudged(tables.job_id, rule, reason)
        return
    active = np.flatnonzero((accesses.bytes > 0) & (accesses.time_us > 0))
    on_lustre = np.asarray(pc.fill_null(pc.equal(accesses.rows["file_system"], "lustre"), False))[active]
    unknown = int(np.unique(accesses.file_id[active[on_lustre & (accesses.stripes[active] < 0)]]).size)
    if unknown:
        reason = f"{counted(unknown, 'file')} on Lustre, whose layout is unknown or known in part, left out"
        yield NotJudged(tables.job_id, rule, reason)
    for mount in sorted(pc.unique(tables.osts["mount"]).to_pylist()):
        files, osts, stripes = _placed(tables.osts.filter(pc.equal(tables.osts["mount"], mount)))
        records, placed = _joined(active, accesses.file_id, files)
        if not records.size:
            continue
        numbers, member = np.unique(osts[placed], return_inverse=True)
        if numbers.size >= MIN_PEERS and _is_one_layout(files, osts):
            reason = (
                f"all files of {plain(mount)} are on the same {numbers.size} OSTs, which cannot be told apart"
            )
            yield NotJudged(tables.job_id, rule, reason)
            continue
        names = [f"OST {number}" for number in numbers.tolist()]
        weight = 1.0 / np.maximum(stripes[placed], 1)
        words = f"OSTs of {plain(mount) or 'an unknown mount'}"
        yield _PeerMembers("ost", words, names, records, member, weight)


def _placed(rows: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """File, OST and stripe count of each row, by file and OST, once each: several logs name the same file."""
    files, osts, stripes = (integers(rows, name) for name in ("file_id", "ost", "stripes"))
    order = np.lexsort((stripes, osts, files))
    files, osts, stripes = files[order], osts[order], stripes[order]
    is_new = np.ones(files.size, np.bool_)
    is_new[1:] = (np.diff(files) != 0) | (np.diff(osts) != 0) | (np.diff(stripes) != 0)
    return files[is_new], osts[is_new], stripes[is_new]


def _is_one_layout(files: NDArray[np.int64], osts: NDArray[np.int64]) -> bool:
    """True when all files are on the same OSTs; rows are sorted by file and OST."""
    _, counts = np.unique(files, return_counts=True)
    if (counts != counts[0]).any():
        return False
    by_file = osts.reshape(-1, counts[0])
    return bool((by_file == by_file[0]).all())


def _joined(
    active: NDArray[np.int64], file_ids: NDArray[np.int64], files: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of a record among `active` and a row of its file in `files`, which is sorted."""
    first = np.searchsorted(files, file_ids[active], "left")
    count = np.searchsorted(files, file_ids[active], "right") - first
    records = np.repeat(active, count)
    within = np.arange(records.size) - np.repeat(np.cumsum(count) - count, count)
    return records, np.repeat(first, count) + within


def _ranks(tables: JobTables, accesses: Accesses) -> Iterator[NotJudged | _PeerMembers]:
    if tables.processes < 2:
        return
    rule = f"ranks ({accesses.direction})"
    if len(tables.logs) > 1:
        reason = f"the job has {len(tables.logs)} logs, in each of which ranks count from 0"
        yield NotJudged(tables.job_id, rule, reason)
        return
    own = np.flatnonzero((accesses.rank > ALL_RANKS) & (accesses.bytes > 0) & (accesses.time_us > 0))
    if own.size:
        ranks, member = np.unique(accesses.rank[own], return_inverse=True)
        yield _PeerMembers("rank", "ranks", [f"Rank {rank}" for rank in ranks.tolist()], own, member)
    elif accesses.timed.size:
        reason = "all files were shared by all ranks: of each only the slowest rank is recorded"
        yield NotJudged(tables.job_id, rule, reason)


def _nodes(
    tables: JobTables, accesses: Accesses, nodes: dict[int, str]
) -> Iterator[NotJudged | _PeerMembers]:
    if tables.processes < 2:
        return
    names = sorted(set(nodes.values()))
    reason = ""
    if not names:
        reason = "the node of a rank is known from a DXT trace only, and the log has none"
    elif len(tables.logs) > 1:
        reason = f"the job has {len(tables.logs)} logs, in each of which ranks count from 0"
    elif len(names) < MIN_PEERS:
        reason = f"{counted(len(names), 'node')} in the trace, {MIN_PEERS} are needed to compare them"
    if reason:
        yield NotJudged(tables.job_id, f"nodes ({accesses.direction})", reason)
        return
    number = {name: place for place, name in enumerate(names)}
    of_rank = {rank: number[name] for rank, name in nodes.items()}
    member = np.array([of_rank.get(rank, -1) for rank in accesses.rank.tolist()], np.int64)
    own = np.flatnonzero((member >= 0) & (accesses.bytes > 0) & (accesses.time_us > 0))
    yield _PeerMembers("node", "nodes", [f"Node {plain(name, 64)}" for name in names], own, member[own])


def _shared(tables: JobTables, accesses: Accesses, explained: NDArray[np.bool_]) -> Iterator[IoFinding]:
    """The slowest rank of a file that all ranks shared, where it stands out and had no more bytes."""
    rows = accesses.rows
    if not len(rows) or not accesses.busy_us:
        return
    worst: IoFinding | None = None
    slowest_us, slowest_bytes = integers(rows, "slowest_time_us"), integers(rows, "slowest_bytes")
    slowest_rank = integers(rows, "slowest_rank")
    variance = rows["time_variance"].to_numpy()
    columns = ("time_variance", "bytes_read", "bytes_written", "read_time_us", "write_time_us")
    is_known = np.isfinite(np.array([rows[name].to_numpy() for name in columns], np.float64)).all(axis=0)
    is_known &= variance >= 0
    total_bytes = integers(rows, "bytes_read", 0) + integers(rows, "bytes_written", 0)
    total_us = accesses.meta_us + integers(rows, "read_time_us", 0) + integers(rows, "write_time_us", 0)
    for at in accesses.path.place:
        count = int(accesses.processes[at])
        if accesses.rank[at] != ALL_RANKS or explained[at] or count <= MIN_PEERS or slowest_us[at] <= 0:
            continue
        if not is_known[at]:  # 0 in place of a time or a spread would blame the slowest rank
            continue
        slow, mean = slowest_us[at] / _MICROS, total_us[at] / _MICROS / count
        others = (mean * count - slow) / (count - 1)
        squares = max((count * (float(variance[at]) + mean**2) - slow**2) / (count - 1) - others**2, 0.0)
        spread = max(float(np.sqrt(squares)), 0.05 * others, 1e-6)
        if others <= 0 or slow / others < MIN_RATIO or (slow - others) / spread < MIN_SHARED_SCORE:
            continue
        mean_bytes = total_bytes[at] / count
        if not mean_bytes / _ALIKE <= slowest_bytes[at] <= _ALIKE * mean_bytes:
            continue
        share = min((slow - others) * _MICROS, accesses.busy_us) / accesses.busy_us
        if share < MIN_SHARE or (worst is not None and share <= worst.share):
            continue
        rank = int(slowest_rank[at])
        text = (
            f"Rank {rank} took {slow:.3g} s where the other {count - 1:,} ranks took a mean of {others:.3g} "
            f"s for as much of a file that all share: about {share:.0%} of the time."
        )
        factor = slow / others
        is_metadata = accesses.meta_us[at] > (slow - others) * _MICROS / 2
        advice = _MAYBE_METADATA if is_metadata else _OF_RANK
        worst = IoFinding(
            tables.job_id, accesses.direction, "rank", f"rank {rank}", factor, share, text, advice
        )
    if worst is not None:
        yield worst
