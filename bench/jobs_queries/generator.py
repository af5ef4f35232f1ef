"""A site with a year of jobs as the archive's own kinds of Parquet; shares nothing with the reader.

Nodes are in blocks on which jobs of one size follow one another; half of the blocks consist of pieces of
eight nodes from all over their pool. Jobs have one revision each. Client rows of `job_components` and rows of
`job_series` exist for the jobs of the last `detail_days` only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.archive import layout
from laggard_aggregator.jobs import tables

SITE: Final = "site"
FIRST: Final = 1_735_689_600
"""2025-01-01."""
DAY: Final = 86_400
STEP: Final = 10
USERS, ACCOUNTS, APPLICATIONS = 2_000, 200, 300
NODES_OF_A_FORWARDER: Final = 512
OSTS: Final = 288
STATES: Final = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")
_SIZES: Final = {
    2048: 0.00015,
    1024: 0.001,
    512: 0.006,
    256: 0.004,
    128: 0.01,
    64: 0.025,
    32: 0.04,
    16: 0.06,
    8: 0.09,
    4: 0.12,
    2: 0.15,
    1: 0.49385,
}
"""Share of the jobs by their number of nodes; 12.5 in the mean."""
_PIECE: Final = 8
_SERIES_GROUP_BYTES: Final = 8 << 20

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SiteSize:
    """Size of a generated site."""

    nodes: int = 40_960
    jobs: int = 2_000_000
    days: int = 365
    detail_days: int = 2


@dataclass(slots=True)
class GeneratedSite:
    """Jobs in the order of their ends; `first`, `size`: their place in `allocated`."""

    size: SiteSize
    start: Floats
    end: Floats
    submit: Ints
    first: Ints
    width: Ints
    user: Ints
    application: Ints
    state: Ints
    allocated: Ints
    keys: list[str] = field(default_factory=list)

    @property
    def memberships(self) -> int:
        """Pairs of a job and a node."""
        return int(self.width.sum())

    @property
    def detailed_from(self) -> float:
        """The begin of the last `detail_days`: jobs that ended since then have series."""
        last = int((self.end[-1] - FIRST) // DAY)
        return FIRST + (last - self.size.detail_days + 1) * DAY

    def nodes_of(self, job: int) -> list[str]:
        """Names of the nodes of a job."""
        at = int(self.first[job])
        return [node_name(each) for each in self.allocated[at : at + int(self.width[job])].tolist()]


def node_name(number: int) -> str:
    """Name of a node."""
    return f"cn{number:05d}"


def user_name(number: int) -> str:
    """Name of a user."""
    return f"user{number:04d}"


def make(size: SiteSize, rng: np.random.Generator) -> GeneratedSite:
    """Draws the jobs of a site."""
    blocks, starts, ends, firsts, widths = [], [], [], [], []
    taken = placed = 0
    span = size.days * DAY
    for width, share in _SIZES.items():
        if width > size.nodes // 16 and width > 1:
            continue
        jobs = max(round(size.jobs * share), 1)
        count = max(round(size.nodes * share / 12.5), 1) if width > 1 else max(size.nodes - taken, 1)
        pool = np.arange(taken, taken + count * width)
        if width > _PIECE and count > 1:
            pieces = pool.reshape(count, -1, _PIECE)
            odd = pieces[1::2].reshape(-1, _PIECE)
            pieces[1::2] = odd[rng.permutation(len(odd))].reshape(pieces[1::2].shape)
        taken += count * width
        each = -(-jobs // count)
        lasted = np.exp(rng.normal(0, 1.2, (count, each)))
        pause = rng.exponential(0.05, (count, each))
        until = np.cumsum(lasted + pause, axis=1)
        scale = span * rng.uniform(0.97, 1.0, (count, 1)) / until[:, -1:]
        ended = np.floor(until * scale)
        begun = np.minimum(np.ceil((until - lasted) * scale), ended - 1)
        keep = rng.permutation(count * each)[:jobs]
        starts.append(begun.ravel()[keep])
        ends.append(ended.ravel()[keep])
        firsts.append(placed + np.repeat(np.arange(count) * width, each)[keep])
        widths.append(np.full(len(keep), width))
        blocks.append(pool)
        placed += count * width
    start, end = FIRST + np.concatenate(starts), FIRST + np.concatenate(ends)
    order = np.argsort(end, kind="stable")
    n = len(order)
    user = np.minimum(rng.zipf(1.3, n) - 1, USERS - 1)
    application = (user * 7 + rng.integers(0, 5, n)) % APPLICATIONS
    start = start[order]
    submit = (start - np.floor(rng.exponential(3600, n))).astype(np.int64)
    site = GeneratedSite(
        size, start, end[order], submit, np.concatenate(firsts)[order], np.concatenate(widths)[order],
        user, application, rng.choice(len(STATES), n, p=[0.85, 0.08, 0.04, 0.03]), np.concatenate(blocks),
    )  # fmt: skip
    site.keys = [f"c/{1000 + at}/{each}" for at, each in enumerate(submit.tolist())]
    return site


def write(site: GeneratedSite, archive: Path, rng: np.random.Generator) -> None:
    """Writes the site, a file of each kind and day."""
    days = ((site.end - FIRST) // DAY).astype(np.int64)
    bounds = np.searchsorted(days, np.arange(days[-1] + 2))
    for day in range(int(days[-1]) + 1):
        rows = np.arange(bounds[day], bounds[day + 1])
        if not rows.size:
            continue
        detailed = FIRST + day * DAY >= site.detailed_from
        parts = [
            ("job_nodes", [_nodes(site, rows)]),
            ("jobs", [_jobs(site, rows)]),
            ("job_components", [_components(site, rows, rng, clients=detailed)]),
            ("job_summaries", [_summaries(site, rows, rng)]),
        ]
        for kind, content in parts:
            _part(archive, kind, day, content)
        if detailed:
            _part(archive, "job_series", day, _series(site, rows, rng))


def _part(archive: Path, kind: str, day: int, content: Any) -> None:
    date = datetime.fromtimestamp(FIRST + day * DAY, UTC).date().isoformat()
    where = layout.folder(archive, kind, layout.OWN, date, SITE)
    stamp = layout.stamp((FIRST + day * DAY) * 10**9 + layout.DAY_OPENS_NS)
    layout.write_part(where, stamp, (1, 1), tables.OF_JOBS[kind], content)


def _table(kind: str, rows: int, columns: dict[str, Any]) -> pa.Table:
    """Fills the columns of a kind: arrays, one value for all rows, or null."""
    found = []
    for each in tables.OF_JOBS[kind]:
        value = columns.get(each.name)
        if isinstance(value, np.ndarray | list):
            value = pa.array(value)
        elif not isinstance(value, pa.Array):
            value = pa.repeat(pa.scalar(value, pa.string() if _is_text(each) else each.type), rows)
        if _is_text(each) and not pa.types.is_dictionary(value.type):
            value = value.dictionary_encode()
        found.append(value if value.type == each.type else value.cast(each.type))
    return pa.table(found, schema=tables.OF_JOBS[kind])


def _is_text(column: pa.Field) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _coded(numbers: Ints, name: Any) -> pa.Array:
    """Texts of numbers, each name made once."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    names = pa.array([name(each) for each in distinct.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)


def _revisions(site: GeneratedSite, rows: Ints) -> pa.Array:
    return pa.array(((site.end[rows] + 60) * 1e9).astype(np.int64)).cast(pa.timestamp("ns", tz="UTC"))


def _jobs(site: GeneratedSite, rows: Ints) -> pa.Table:
    applications = site.application[rows]
    return _table(
        "jobs",
        len(rows),
        {
            "job_key": [site.keys[at] for at in rows.tolist()],
            "revision_at": _revisions(site, rows),
            "cluster": "c",
            "raw_id": 1000 + rows,
            "submit": site.submit[rows],
            "sluid": "",
            "job": [str(1000 + at) for at in rows.tolist()],
            "user": _coded(site.user[rows], user_name),
            "account": _coded(site.user[rows] % ACCOUNTS, "project{:03d}".format),
            "name": _coded(applications, "run_{}.sh".format),
            "application": _coded(applications, "app{:03d}".format),
            "partition": "batch",
            "state": _coded(site.state[rows], STATES.__getitem__),
            "source": "sacct",
            "uid": 10_000 + site.user[rows],
            "exit_code": (site.state[rows] == 1).astype(np.int64),
            "eligible": site.submit[rows].astype(np.float64),
            "start": site.start[rows],
            "end": site.end[rows],
            "node_count": site.width[rows],
            "tasks": site.width[rows] * 4,
            "cpus": site.width[rows] * 4,
            "exclusive": True,
            "node_list": "",
            "doubtful": False,
        },
    )


def _places(site: GeneratedSite, rows: Ints) -> tuple[Ints, Ints]:
    """Of each membership the place of its job in `rows`, and its node."""
    width = site.width[rows]
    job = np.repeat(np.arange(len(rows)), width)
    within = np.arange(len(job)) - np.repeat(np.cumsum(width) - width, width)
    return job, site.allocated[site.first[rows][job] + within]


def _keys(site: GeneratedSite, rows: Ints, job: Ints) -> pa.Array:
    return pa.array([site.keys[at] for at in rows.tolist()]).take(pa.array(job))


def _nodes(site: GeneratedSite, rows: Ints) -> pa.Table:
    job, node = _places(site, rows)
    return _table(
        "job_nodes",
        len(job),
        {
            "job_key": _keys(site, rows, job),
            "revision_at": _revisions(site, rows).take(pa.array(job)),
            "node": _coded(node, node_name),
            "start": site.start[rows][job],
            "end": site.end[rows][job],
            "exclusive": True,
            "doubtful": False,
            "source": "sacct",
        },
    )


def _components(site: GeneratedSite, rows: Ints, rng: np.random.Generator, *, clients: bool) -> pa.Table:
    """OSTs and forwarders of all jobs, where told their clients as well; read and written."""
    width = site.width[rows]
    stripes = np.clip(width // 2, 4, 64)
    on_ost = np.repeat(np.arange(len(rows)), stripes)
    ost = (np.repeat(rng.integers(0, OSTS, len(rows)), stripes)
           + np.arange(len(on_ost)) - np.repeat(np.cumsum(stripes) - stripes, stripes)) % OSTS  # fmt: skip
    job, node = _places(site, rows)
    behind = np.unique(job * 100_000 + node // NODES_OF_A_FORWARDER)
    on_forwarder, forwarder = behind // 100_000, behind % 100_000
    groups = [
        (on_ost, "server", _coded(ost // 8, "oss{:02d}".format), _coded(ost, "OST{:04x}".format)),
        (on_forwarder, "forwarder", _coded(forwarder, "fwd{:02d}".format), "fs"),
    ]
    if clients:
        groups.append((job, "client", _coded(node, node_name), "fs"))
    found = []
    for of, layer, host, component in groups:
        for direction in ("read", "write"):
            moved = np.floor(rng.exponential(1e10, len(of)))
            columns = {
                "job_key": _keys(site, rows, of),
                "revision_at": _revisions(site, rows).take(pa.array(of)),
                "layer": layer,
                "node": host,
                "component": component,
                "direction": direction,
                "bytes": moved,
                "operations": moved // 1e6,
                "latency_seconds": moved / 1e9,
                "coverage": 1.0 if layer == "client" else None,
                "shared": False,
            }
            found.append(_table("job_components", len(of), columns))
    return pa.concat_tables(found).unify_dictionaries().combine_chunks().sort_by("job_key")


def _summaries(site: GeneratedSite, rows: Ints, rng: np.random.Generator) -> pa.Table:
    n = len(rows)
    read, written = (np.floor(10 ** rng.normal(10, 1.5, n)) for _ in range(2))
    active = np.maximum((site.end[rows] - site.start[rows]) * rng.uniform(0.01, 0.5, n), 1.0)
    moved = {
        f"{layer}_{name}_bytes": amount * (1 + at * 0.01)
        for at, layer in enumerate(("client", "forwarder", "server"))
        for name, amount in (("read", read), ("written", written))
    }
    return _table(
        "job_summaries",
        n,
        {
            "job_key": _keys(site, rows, np.arange(n)),
            "revision_at": _revisions(site, rows),
            "read_bytes": read,
            "written_bytes": written,
            "metadata_operations": np.floor(10 ** rng.normal(4, 1, n)),
            "mean_read_mib_per_second": read / active / 2**20,
            "mean_written_mib_per_second": written / active / 2**20,
            "peak_read_mib_per_second": read / active / 2**18,
            "peak_written_mib_per_second": written / active / 2**18,
            "iops": rng.exponential(100, n),
            "mdops": rng.exponential(30, n),
            "active_seconds": active,
            "core_hours": site.width[rows] * 4 * (site.end[rows] - site.start[rows]) / 3600,
            **moved,
            "amplification": np.exp(rng.normal(0, 0.2, n)),
            "unaccounted_ratio": rng.uniform(0, 0.02, n),
            "coverage": 1.0,
            "nodes_with_io": site.width[rows],
            "shared": False,
            "mode_unknown": 1.0,
        },
    )


def _series(site: GeneratedSite, rows: Ints, rng: np.random.Generator) -> Iterator[pa.Table]:
    """Tables of a few jobs each, as merged files have them: phases of reading and writing, mostly silence."""
    revisions = _revisions(site, rows).cast(pa.int64()).to_numpy()
    waiting: list[dict[str, Any]] = []
    held = 0
    for place, at in enumerate(rows.tolist()):
        bins = int(-(-(site.end[at] - site.start[at]) // STEP))
        for layer in ("client", "forwarder", "metadata", "server"):
            lists = [_phases(bins, rng) for _ in range(3)]
            names = ("read_bytes", "written_bytes", "metadata_operations")
            own = {"job_key": site.keys[at], "revision_at": int(revisions[place]), "layer": layer}
            own |= {"resolution_seconds": float(STEP), "start": float(site.start[at])}
            waiting.append(own | dict(zip(names, lists, strict=True)))
            held += 24 * bins
        if held > _SERIES_GROUP_BYTES:
            yield _series_table(waiting)
            waiting, held = [], 0
    if waiting:
        yield _series_table(waiting)


def _phases(bins: int, rng: np.random.Generator) -> Floats:
    found = np.zeros(bins)
    for begin in rng.integers(0, bins, max(bins // 200, 1)).tolist():
        stretch = found[begin : begin + 20]
        stretch[:] = rng.integers(1, 10**10, len(stretch))
    return found


def _series_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    for each in tables.OF_JOBS["job_series"]:
        if isinstance(rows[0].get(each.name), np.ndarray):
            lists = [row[each.name] for row in rows]
            offsets = np.cumsum([0, *(len(one) for one in lists)]).astype(np.int32)
            columns[each.name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(lists)))
    return _table("job_series", len(rows), columns)
