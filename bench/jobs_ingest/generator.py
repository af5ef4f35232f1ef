"""Runs of jobs as sacct would print them over time, and the truth about each; shares nothing with the parser.

Everything that breaks naive joins occurs: ids that wrap and are used again, arrays whose ids are unrelated to
their index, heterogeneous jobs, requeues under the same id, resizes that repeat the start, suspended and
cancelled jobs, dead nodes, shared nodes, ends that are unknown for a while, final records that change, rows
of steps, and names with separators, line feeds and control characters.
"""

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

SEPARATOR = "\x1f"
HEADER = (
    *("JobIDRaw", "JobID", "Cluster", "User", "UID", "Account", "Partition", "State", "Submit", "Eligible"),
    *("Start", "End", "ElapsedRaw", "Suspended", "NNodes", "AllocCPUS", "ExitCode", "NodeList", "JobName"),
)
EPOCH = 1_790_000_000
DAYS = 30
NODES = 4_000
MOST_ID = 400_000
"""Ids wrap here, so that most are used several times."""
CLUSTERS = ("alpha", "beta")
NAMES = (
    *("wrf_%d.sh", "vasp", "lammps-run.%d", "a|b", "tab\tname", "x\x1fy", "'; drop table jobs; --"),
    *("<script>alert(1)</script>", "d é漢 `q`", "two\nlines", "%s%n", "   ", "-", "\u202egnol"),
)


@dataclass(slots=True)
class Truth:
    """The run as it was at last. `nodes`: indices of its nodes."""

    state: str
    start: int | None
    end: int | None
    nodes: tuple[int, ...]


@dataclass(slots=True)
class Site:
    """Records by the time of their change, and the truth by (cluster, raw id, submission)."""

    rows: list[tuple[int, str]] = field(default_factory=list)
    truth: dict[tuple[str, int, int], Truth] = field(default_factory=dict)


def generate(records: int, seed: int) -> Site:
    """At least `records` records."""
    rng = random.Random(seed)
    site = Site()
    ids = {cluster: rng.randrange(MOST_ID) for cluster in CLUSTERS}
    while len(site.rows) < records:
        cluster = rng.choice(CLUSTERS)
        for row in _job(rng, site, cluster, ids):
            site.rows.append(row)
    return site


def _new_id(ids: dict[str, int], cluster: str) -> int:
    ids[cluster] = ids[cluster] % MOST_ID + 1
    return ids[cluster]


def _job(rng: random.Random, site: Site, cluster: str, ids: dict[str, int]) -> Iterator[tuple[int, str]]:
    """One submission with all of its parts and runs."""
    submit = EPOCH + rng.randrange(DAYS * 86_400)
    kind = rng.random()
    if kind < 0.15:
        parts = [(_new_id(ids, cluster), "_%d") for _ in range(rng.randrange(2, 9))]
        leader = parts[-1][0]
    elif kind < 0.2:
        parts = [(_new_id(ids, cluster), "+%d") for _ in range(rng.randrange(2, 4))]
        leader = parts[0][0]
    else:
        parts = [(_new_id(ids, cluster), "")]
        leader = parts[0][0]
    for index, (raw, suffix) in enumerate(parts):
        shown = f"{leader}{suffix % index}" if suffix else str(raw)
        if suffix == "_%d" and raw == leader:
            yield (
                submit,
                _row(
                    (cluster, raw, f"{leader}_[{index}%4]"), "PENDING", (submit, submit, None, None), (), rng
                ),
            )
        at = submit
        for _ in range(1 + (rng.random() < 0.08) + (rng.random() < 0.03)):
            if (cluster, raw, at) in site.truth:
                break  # an id used again within the same second
            last = yield from _run(rng, site, (cluster, raw, shown), at)
            if last is None:
                break
            at = last


def _run(
    rng: random.Random, site: Site, job: tuple[str, int, str], submit: int
) -> Generator[tuple[int, str], None, int | None]:
    """Yields the records of one run; returns the time of its requeue, None without one."""
    cluster, raw, _ = job
    key = (cluster, raw, submit)
    eligible = submit + rng.choice((0, 0, 0, 121))
    start = eligible + int(rng.expovariate(1 / 1800))
    end = start + int(rng.expovariate(1 / 7200))
    nodes = _nodes(rng)
    yield submit, _row(job, "PENDING", (submit, eligible, None, None), (), rng)
    fate = rng.random()
    if fate < 0.03:
        end = submit + rng.randrange(600)
        yield end, _row(job, "CANCELLED by 1000", (submit, eligible, None, end), (), rng, none="None")
        site.truth[key] = Truth("CANCELLED", None, end, ())
        return None
    yield start, _row(job, "RUNNING", (submit, eligible, start, None), nodes, rng)
    if fate < 0.05:
        yield start + 1, _row(job, "SUSPENDED", (submit, eligible, start, None), nodes, rng)
    if fate > 0.97:
        site.truth[key] = Truth("RUNNING", start, None, nodes)
        return None
    if fate > 0.93 and len(nodes) > 1 and end > start + 2:
        middle = (start + end) // 2
        if (cluster, raw, middle) not in site.truth:
            yield middle, _row(job, "RESIZING", (submit, eligible, start, middle), nodes, rng)
            site.truth[key] = Truth("RESIZING", start, middle, nodes)
            kept = nodes[: len(nodes) // 2]
            yield end, _row(job, "COMPLETED", (middle, middle, start, end), kept, rng)
            site.truth[cluster, raw, middle] = Truth("COMPLETED", middle, end, kept)
            return None
    state = rng.choices(
        ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 2001", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        (80, 8, 4, 4, 1, 1, 2),
    )[0]
    if fate < 0.07:
        yield end, _row(job, state, (submit, eligible, start, None), nodes, rng)  # the database lags
    yield end, _row(job, state, (submit, eligible, start, end), nodes, rng)
    if rng.random() < 0.05:
        yield end, _row(job, state, (submit, eligible, start, end), nodes, rng, step=".batch")
    requeued = end + rng.randrange(1, 4)
    if state == "NODE_FAIL":
        site.truth[key] = Truth("NODE_FAIL", start, end, nodes)
        return requeued
    if rng.random() < 0.02:
        yield requeued, _row(job, "REQUEUED", (submit, eligible, start, requeued), nodes, rng)
        site.truth[key] = Truth("REQUEUED", start, requeued, nodes)
        return requeued
    site.truth[key] = Truth(state.split()[0], start, end, nodes)
    return None


def _nodes(rng: random.Random) -> tuple[int, ...]:
    count = min(int(rng.paretovariate(1.1)), 256)
    first = rng.randrange(NODES - count)
    if count > 2 and rng.random() < 0.2:
        return (first, *range(first + 2, first + count))
    return tuple(range(first, first + count))


def node_name(index: int) -> str:
    """Name of a node."""
    return f"n{index:04d}"


def _node_list(nodes: tuple[int, ...]) -> str:
    """Bracket expression of nodes in order."""
    if not nodes:
        return "None assigned"
    runs: list[list[int]] = []
    for node in nodes:
        if runs and runs[-1][1] == node - 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    if len(nodes) == 1:
        return node_name(nodes[0])
    return "n[" + ",".join(f"{a:04d}" if a == b else f"{a:04d}-{b:04d}" for a, b in runs) + "]"


def _row(
    job: tuple[str, int, str],
    state: str,
    times: tuple[int, int, int | None, int | None],
    nodes: tuple[int, ...],
    rng: random.Random,
    *,
    none: str = "Unknown",
    step: str = "",
) -> str:
    """A row of sacct. `none`: the word for no start; `step`: the suffix of a step's ids."""
    cluster, raw, shown = job
    submit, eligible, start, end = times
    elapsed = end - start if start is not None and end is not None else 0
    name = NAMES[rng.randrange(len(NAMES))]
    user = rng.randrange(300)
    cells = (
        *(f"{raw}{step}", f"{shown}{step}", cluster, f"user{user}", 2000 + user, f"proj{user % 40}", "batch"),
        *(state, submit, eligible, none if start is None else start, "Unknown" if end is None else end),
        *(elapsed, "00:00:00", len(nodes), 32 * len(nodes), "0:0", _node_list(nodes)),
        name % rng.randrange(1000) if "%d" in name else name,
    )
    return SEPARATOR.join(map(str, cells))
