"""What came of every sample: agents' clocks, seqs and disks against what the aggregator archived.

Three questions, none of them put to what is checked. By seq: a stream's batches are numbered, so one that
is missing below the highest of which anybody knows (archive, acknowledgements, spools of agents as they were
killed and as they ended) is lost, and one that is there twice was counted twice. By clock: an agent samples
at multiples of its interval, so between its start and its end every one of them must be there but for those
that it says itself it missed. By life: an agent that ends in order leaves nothing behind.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bench.chaos.processes import Life
from bench.chaos.site import Site
from bench.chaos.witness import StreamOf, spooled
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.demo.site import BATCH_SAMPLES
from laggard_aggregator.offline.archive_input import Replay

_COLUMNS = ("node", "stream", "seq", "tick", "received", "ordinal", "run")
_LAST_NS = 1_000_000_000
"""So long before an orderly end the last sample may have been."""


@dataclass(frozen=True, slots=True)
class Batch:
    """As it is archived; `times`: how often."""

    node: str
    stream: bytes
    seq: int
    received_ns: int
    ticks_ns: tuple[int, ...]
    times: int


@dataclass(slots=True)
class Account:
    """Samples by when they came, those that never came by when the next one did; epoch nanoseconds.

    `missed`: not taken, as the agents say. `problems`: whatever is not as it should be.
    """

    came: list[tuple[int, int]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    twice: list[tuple[int, int]] = field(default_factory=list)
    missed: int = 0
    problems: list[str] = field(default_factory=list)

    def between(self, what: str, begin_ns: int, end_ns: int) -> int:
        """How many samples `came`, were `lost`, or are there `twice`, in a time."""
        events: Iterable[tuple[int, int]] = getattr(self, what)
        return sum(n for at_ns, n in events if begin_ns <= at_ns < end_ns)


def account(site: Site) -> Account:
    """The account of a site that has ended in order."""
    batches = list(_batches(site))
    made = Account()
    for batch in batches:
        made.came.append((batch.received_ns, len(batch.ticks_ns)))
        if batch.times > 1:
            made.twice.append((batch.received_ns, len(batch.ticks_ns) * (batch.times - 1)))
    _by_seq(batches, _known(site), made)
    for node in site.agents:
        own = [batch for batch in batches if batch.node == node]
        _by_life(node, own, site.agents[node].lives, made)
        _by_clock(site, node, own, made)
    _of_alarms(site, made)
    return made


def _batches(site: Site) -> Iterable[Batch]:
    """Everything archived, in the order of coming."""
    table = ArchiveReader(site.archive).table("counters", "diskstats", _COLUMNS)
    columns = [
        table[name].cast("int64") if name in ("tick", "received", "run") else table[name] for name in _COLUMNS
    ]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    ticks: dict[tuple[str, str, int], dict[tuple[int, int], list[int]]] = {}
    received: dict[tuple[str, str, int], int] = {}
    for node, stream, seq, tick, came, ordinal, run in rows:
        ticks.setdefault((node, stream, seq), {}).setdefault((run, ordinal), []).append(tick)
        received[node, stream, seq] = min(came, received.get((node, stream, seq), came))
    for name, copies in sorted(ticks.items(), key=lambda item: received[item[0]]):
        node, stream, seq = name
        first = next(iter(copies.values()))
        yield Batch(node, bytes.fromhex(stream), seq, received[name], tuple(first), len(copies))


def _known(site: Site) -> Mapping[StreamOf, int]:
    """The highest seq of each stream that somebody else than the archive knows of."""
    known = Counter(site.spooled)
    for key, ranges in site.witness.acked.items():
        known[key] = max([known[key], *(high for _, high in ranges)])
    for node in site.agents:
        for batch in spooled(site.left(node))[1]:
            known[node, batch.stream] = max(known[node, batch.stream], batch.seq)
    return known


def _by_seq(batches: Sequence[Batch], known: Mapping[StreamOf, int], made: Account) -> None:
    there: dict[StreamOf, dict[int, int]] = {}
    for batch in batches:
        there.setdefault((batch.node, batch.stream), {})[batch.seq] = batch.received_ns
    end_ns = batches[-1].received_ns
    for key in there.keys() | known.keys():
        seqs = there.get(key, {})
        at_ns, gone = end_ns, []
        for seq in range(max([known.get(key, -1), *seqs]), -1, -1):
            if seq in seqs:
                at_ns = seqs[seq]
            else:
                made.lost.append((at_ns, BATCH_SAMPLES))
                gone.append(seq)
        if gone:
            made.problems.append(
                f"{key[0]}: lost {len(gone)} batches, {gone[-1]} to {gone[0]} of stream {key[1].hex()[:6]}"
            )


def _by_life(node: str, batches: Sequence[Batch], lives: Sequence[Life], made: Account) -> None:
    """An agent that ends in order has sampled to its end."""
    last = lives[-1]
    newest = max((batch.received_ns for batch in batches), default=0)
    if last.killed or last.ended_ns is None or last.ended_ns - newest > _LAST_NS:
        made.problems.append(f"{node}: did not end in order, or what it had last did not come")


def _by_clock(site: Site, node: str, batches: Sequence[Batch], made: Account) -> None:
    """Every multiple of the interval in the agent's lives, but for what it says that it missed.

    The last that an agent said before it was killed is up to 10 s old: of such a life the seqs alone tell.
    """
    said = [status for (name, _), status in site.witness.status.items() if name == node]
    dropped = sum(status["dropped_samples"] + status["unconfirmed_samples"] for status in said)
    if dropped:
        made.problems.append(f"{node}: dropped {dropped} samples")
    if node in site.stepped:
        return  # its clock says nothing
    came_at = {tick: batch.received_ns for batch in batches for tick in batch.ticks_ns}
    repeated = sum(len(batch.ticks_ns) for batch in batches) - len(came_at)
    if repeated:
        made.twice.append((batches[-1].received_ns, repeated))
        made.problems.append(f"{node}: {repeated} samples are in two batches")
    lives = site.agents[node].lives
    if len(said) != len(lives):
        made.problems.append(f"{node}: {len(lives)} lives, {len(said)} of which said something")
    for life, status in zip(lives, said, strict=False):
        if not life.killed:
            _by_life_and_clock(site, node, life, came_at, status["missed_ticks"], made)


def _by_life_and_clock(
    site: Site, node: str, life: Life, came_at: Mapping[int, int], missed: int, made: Account
) -> None:
    interval_ns = round(site.feed.tick_seconds * 1e9)
    ended_ns = life.ended_ns or 2**63
    ticks = sorted(tick for tick in came_at if life.started_ns <= tick < ended_ns)
    gaps = [((after - before) // interval_ns - 1, came_at[after]) for before, after in pairwise(ticks)]
    absent = sum(n for n, _ in gaps)
    made.missed += missed
    if absent > missed:
        made.lost.append((max(gaps)[1], absent - missed))
        made.problems.append(f"{node}: {absent} samples are missing, and it says that it missed {missed}")


def _of_alarms(site: Site, made: Account) -> None:
    """One alarm, raised once, in what the archive has and in what it makes of it again."""
    judged = Replay(ArchiveReader(site.archive)).judgements()
    kinds = [t.kind for judgement in judged for t in judgement.transitions]
    said = (site.folder / "aggregator.log").read_text(errors="replace")
    raised, cleared = said.count(" is a straggler of "), said.count(" is no straggler any more")
    if kinds != ["raised"] or raised != 1 or cleared:
        made.problems.append(
            f"the alarm was raised {raised} times and cleared {cleared} times; the archive says {kinds}"
        )
