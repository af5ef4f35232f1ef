"""What came of every sample: agents' clocks, disks and messages against what the aggregator archived.

Two questions, neither of them put to what is checked. By batch: whatever an onlooker saw on an agent's disk
or in a message must be in the archive, once. By clock: an agent samples at multiples of its interval, so
between its start and its end every one of them must be there but for those that it says itself it missed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bench.chaos.ground_truth import Seen, StreamOf
from bench.chaos.processes import Life
from bench.chaos.site import Site
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.offline.archive_replay import ArchiveReplay

_COLUMNS = ("node", "stream", "tick", "received")
_LAST_NS = 1_000_000_000
"""So long before an orderly end the last sample may have been."""

Ticks = Mapping[int, Sequence[int]]
"""When the samples of each tick came, epoch nanoseconds both."""


@dataclass(slots=True)
class Account:
    """How many samples came, were lost, are there twice, by when; epoch nanoseconds.

    `missed`: not taken, as the agents say. `problems`: whatever is not as it should be.
    """

    came: list[tuple[int, int]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    twice: list[tuple[int, int]] = field(default_factory=list)
    missed: int = 0
    problems: list[str] = field(default_factory=list)

    def between(self, what: str, begin_ns: int, end_ns: int) -> int:
        """How many samples `came`, were `lost`, or are there `twice`, in a time."""
        events: list[tuple[int, int]] = getattr(self, what)
        return sum(n for at_ns, n in events if begin_ns <= at_ns < end_ns)


def account(site: Site) -> Account:
    """The account of a site that has ended in order."""
    made = Account()
    archived = _archived(site)
    by_node: dict[str, dict[int, list[int]]] = {node: {} for node in site.agents}
    for node in site.agents:
        site.witness.look(node, site.left(node))
    seen = {key: dict(batches) for key, batches in site.witness.seen.items()}
    for node in site.agents:
        for batch in site.witness.look(node, site.left(node))[1]:
            if not site.witness.is_acked(node, batch):  # it waits for the agent to begin again
                waiting = seen[node, batch.stream].pop(batch.seq)
                for tick in waiting.ticks_ns:
                    by_node[node].setdefault(tick, []).append(waiting.seen_ns)
    for ticks in archived.values():
        made.came += Counter(at_ns for came in ticks.values() for at_ns in came).items()
    for key in sorted(archived.keys() | seen.keys()):
        by_batch(key, seen.get(key, {}), archived.get(key, {}), made)
    for (node, _), ticks in archived.items():
        for tick, came in ticks.items():
            by_node[node].setdefault(tick, []).extend(came)
    for node, of_node in by_node.items():
        _by_lives(site, node, of_node, made)
    _of_alarms(site, made)
    return made


def by_batch(key: StreamOf, seen: Mapping[int, Seen], archived: Ticks, made: Account) -> None:
    """Notes the samples of one stream that were seen and are not archived, and those that are too often.

    A clock that is set back gives ticks again, so each may be there as often as batches have it.
    """
    expected: Counter[int] = Counter()
    lost: list[int] = []
    repeated = 0
    for seq, batch in sorted(seen.items()):
        expected.update(batch.ticks_ns)
        gone = sum(expected[tick] > len(archived.get(tick, ())) for tick in batch.ticks_ns)
        if gone:
            made.lost.append((batch.seen_ns, gone))
            lost.append(seq)
    for tick, came in archived.items():
        beyond = len(came) - max(expected[tick], 1)
        if beyond > 0:
            made.twice.append((max(came), beyond))
            repeated += beyond
    name = f"{key[0]}, stream {key[1].hex()[:6]}"
    if lost:
        made.problems.append(f"{name}: lost {len(lost)} batches of {lost[0]} to {lost[-1]}")
    if repeated:
        made.problems.append(f"{name}: {repeated} samples are there twice")


def by_clock(node: str, life: Life, ticks: Ticks, interval_ns: int, missed: int, made: Account) -> None:
    """Notes multiples of the interval in a life that did not come, beyond those that the agent `missed`."""
    ended_ns = life.ended_ns or 2**63
    there = sorted(tick for tick in ticks if life.started_ns <= tick < ended_ns)
    gaps = [((after - before) // interval_ns - 1, max(ticks[after])) for before, after in pairwise(there)]
    absent = sum(n for n, _ in gaps)
    made.missed += missed
    if absent > missed:
        made.lost.append((max(gaps)[1], absent - missed))
        made.problems.append(f"{node}: {absent} samples are missing, and it says that it missed {missed}")
    if not there or (life.ended_ns is not None and life.ended_ns - there[-1] > _LAST_NS):
        made.problems.append(f"{node}: what it had last did not come")


def _archived(site: Site) -> dict[StreamOf, dict[int, list[int]]]:
    table = ArchiveReader(site.archive).table("counters", "diskstats", _COLUMNS)
    times = {name: table[name].cast("int64") for name in ("tick", "received")}
    rows = zip(*(times.get(name, table[name]).to_pylist() for name in _COLUMNS), strict=True)
    found: dict[StreamOf, dict[int, list[int]]] = {}
    for node, stream, tick, received in rows:
        found.setdefault((node, bytes.fromhex(stream)), {}).setdefault(tick, []).append(received)
    return found


def _by_lives(site: Site, node: str, ticks: Ticks, made: Account) -> None:
    """The agent's lives that ended in order by its clock; what it said last of the others is too old."""
    said = [status for (name, _), status in site.witness.status.items() if name == node]
    dropped = sum(status["dropped_samples"] + status["unconfirmed_samples"] for status in said)
    if dropped:
        made.problems.append(f"{node}: dropped {dropped} samples")
    lives = site.agents[node].lives
    if lives[-1].killed or lives[-1].ended_ns is None:
        made.problems.append(f"{node}: did not end in order")
    if node in site.stepped:
        return  # its clock says nothing
    repeated = sum(len(came) - 1 for came in ticks.values())
    if repeated:
        made.twice.append((max(map(max, ticks.values())), repeated))
        made.problems.append(f"{node}: {repeated} samples are in two streams")
    if len(said) != len(lives):
        made.problems.append(f"{node}: {len(lives)} lives, {len(said)} of which said something")
    interval_ns = round(site.feed.tick_seconds * 1e9)
    for life, status in zip(lives, said, strict=False):
        if not life.killed:
            by_clock(node, life, ticks, interval_ns, status["missed_ticks"], made)


def _of_alarms(site: Site, made: Account) -> None:
    """One alarm, raised once, in what the archive has and in what it makes of it again."""
    judged = ArchiveReplay(ArchiveReader(site.archive)).judgements()
    kinds = [t.kind for judgement in judged for t in judgement.transitions]
    said = (site.folder / "aggregator.log").read_text(errors="replace")
    raised, cleared = said.count("alarm raised: "), said.count("alarm cleared: ")
    if site.earlier is not None:  # with another detector the replay begins a run of its own
        kinds = kinds[:1]
    if kinds != ["raised"] or raised != 1 or cleared:
        made.problems.append(
            f"the alarm was raised {raised} times and cleared {cleared} times; the archive says {kinds}"
        )
