"""Records of all sources in one table, settled by the same rules, as rows of the archive's kind `jobs`.

A parser fills the columns of RECORDS with the words of its source. `settled` then drops forecasts, clips a
start to the submission (after a resize Slurm repeats the start of the job before it), puts one where a run on
nodes has none, marks doubtful times, counts the nodes where the source tells only their names, and makes the
key.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laggard_aggregator.archive.table import TEXT, TIME
from laggard_aggregator.jobs.records.hostlist import expand
from laggard_aggregator.jobs.records.model import MAX_TEXT, JobDataError
from laggard_aggregator.jobs.tables import JOBS

RECORDS: Final = pa.schema(
    [
        pa.field(field.name, pa.string() if field.type == TEXT else field.type)
        for field in JOBS
        if field.name != "job_key"
    ]
)
"""Columns of JOBS but for the key. A null `revision_at` is derived from the record's own times."""

STEPS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("raw_id", "job", "user", "name", "state", "node_list")),
        *((name, pa.float64()) for name in ("submit", "eligible", "start", "end")),
        ("node_count", pa.int64()),
    ]
)
"""Rows of jobs and of their steps; `raw_id` has the step behind a dot."""

PENDING: Final = ("PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
RUNNING: Final = (
    *("RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT"),
    *("POWER_UP_NODE", "EXPEDITING", "UPDATE_DB"),
)
KILLED: Final = (
    *("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "TIMEOUT", "DEADLINE", "CANCELLED"),
    *("PREEMPTED", "REQUEUED", "OUT_OF_MEMORY"),
)
"""States whose end is the moment of the signal or of the detection: processes may end at another time."""
FINAL: Final = (*KILLED, "COMPLETED", "FAILED", "RESIZING", "REVOKED")
STATES: Final = frozenset((*PENDING, *RUNNING, *FINAL))

LATE_END_SECONDS: Final = 60.0
"""Ends within this time after a start of slurmctld may be of jobs that ended while it was down."""
UNTOLD_SECONDS: Final = 5.0
"""Interval at which slurmctld reports starts: sacct shows nodes but no start of a run requeued sooner."""
MAX_SECONDS: Final = 1e11
_TIMES: Final = ("eligible", "start", "end", "modified")
_UNTOLD_OF_STEPS: Final = ("restarts", "modified", "doubtful", "revision_at")
_TEXTS: Final = ("job", "user", "account", "name", "application", "partition")
_NO_NODES: Final = pa.array(["None assigned", "None", "Unknown", "N/A", "(null)"])
_SUFFIX: Final = r"\.(sh|bash|csh|slurm|sbatch|job|pbs|lsf|py)$"
_RUN_NUMBER: Final = r"([-_.]+\d+)+$"


def records(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table with the columns of RECORDS; a row lacks what its source lacks."""
    return pa.Table.from_pylist(list(rows), schema=RECORDS)


def settled(records: pa.Table) -> pa.Table:
    """Rows with the columns of JOBS, of a table with those of RECORDS."""
    columns = {name: records[name].combine_chunks() for name in RECORDS.names}
    for name in ("cluster", "sluid", "source", "node_list", *_TEXTS):
        columns[name] = pc.fill_null(columns[name], "")
    for name in _TEXTS:
        columns[name] = pc.utf8_slice_codeunits(columns[name], 0, MAX_TEXT)
    columns["state"] = state = _state(columns["state"])
    columns["node_list"] = _node_lists(columns["node_list"])
    columns["node_count"] = node_counts(columns["node_count"], columns["node_list"])
    columns["application"] = _applications(columns["application"], columns["name"])
    for name in _TIMES:
        value = columns[name]
        columns[name] = pc.if_else(pc.and_(pc.greater(value, 0), pc.less(value, MAX_SECONDS)), value, None)
    _settle_times(columns, state)
    columns["job_key"] = _keys(columns)
    return pa.table(
        [
            columns[field.name].dictionary_encode()
            if field.type == TEXT
            else columns[field.name].cast(field.type)
            for field in JOBS
        ],
        schema=JOBS,
    )


def settled_steps(rows: pa.Table) -> pa.Table:
    """Rows of STEPS by the same rules as records of jobs, where they tell state and submission."""
    columns = {name: rows[name].combine_chunks() for name in STEPS.names}
    for name in ("job", "user", "name", "node_list"):
        columns[name] = pc.fill_null(columns[name], "")
    columns["state"] = state = _state(columns["state"])
    columns["node_list"] = _node_lists(columns["node_list"])
    columns["node_count"] = node_counts(columns["node_count"], columns["node_list"])
    columns["submit"] = pc.coalesce(columns["submit"], columns["start"])
    unknown = {name: pa.nulls(len(rows), RECORDS.field(name).type) for name in _UNTOLD_OF_STEPS}
    settled_columns = columns | unknown
    _settle_times(settled_columns, state)
    return pa.table([settled_columns[name] for name in STEPS.names], schema=STEPS)


def finality(state: pa.Array, end: pa.Array) -> "np.ndarray[Any, np.dtype[np.int8]]":
    """0 for pending jobs, 1 for running ones, 2 for final states without an end, 3 with one.

    Within one key it never falls: a requeue has another submission.
    """
    final = pc.invert(pc.is_in(state, pa.array([*PENDING, *RUNNING])))
    started = pc.invert(pc.is_in(state, pa.array(PENDING)))
    ended = pc.and_(final, pc.is_valid(end))
    return sum(np.asarray(flag).astype(np.int8) for flag in (started, final, ended))  # type: ignore[return-value]


def with_late_ends(table: pa.Table, controller_starts: Sequence[float]) -> pa.Table:
    """`table` with the ends of jobs that ran before a start of slurmctld, soon after it, as doubtful."""
    starts, ends = (
        table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("start", "end")
    )
    late = np.zeros(len(table), dtype=np.bool_)
    for begun in controller_starts:
        late |= (starts < begun) & (ends >= begun) & (ends <= begun + LATE_END_SECONDS)
    doubtful = pc.or_(table["doubtful"], pa.array(late))
    return table.set_column(table.column_names.index("doubtful"), RECORDS.field("doubtful"), doubtful)


def _settle_times(columns: dict[str, pa.Array], state: pa.Array) -> None:
    """Makes forecasts unknown, clips a start to the submission, puts lost ones; marks doubtful times."""
    pending = pc.is_in(state, pa.array(PENDING))
    running = pc.is_in(state, pa.array(RUNNING))
    # While a requeued job completes, Slurm shows the forecast of its next run.
    between = pc.and_(pc.equal(state, "COMPLETING"), pc.fill_null(pc.greater(columns["restarts"], 0), False))
    submit = columns["submit"].cast(pa.float64())
    start = pc.if_else(pc.or_(pending, between), None, columns["start"])
    start = pc.if_else(pc.less(start, submit), submit, start)
    end = pc.if_else(pc.or_(pending, running), None, columns["end"])
    killed = pc.is_in(state, pa.array(KILLED))
    ran = pc.and_(killed, pc.and_(pc.is_valid(end), pc.not_equal(columns["node_list"], "")))
    untold = pc.and_(ran, pc.is_null(start))
    earliest = pc.max_element_wise(submit, columns["eligible"], pc.subtract(end, UNTOLD_SECONDS))
    start = pc.if_else(untold, pc.min_element_wise(earliest, end), start)
    backwards = pc.fill_null(pc.less(end, start), False)
    end = pc.if_else(backwards, start, end)
    started = pc.is_valid(start)
    lost = pc.and_(pc.invert(pc.or_(pending, running)), pc.is_null(end))
    doubtful = pc.and_(started, pc.or_(pc.or_(killed, lost), backwards))
    columns["start"], columns["end"] = start, end
    columns["doubtful"] = pc.or_(pc.fill_null(columns["doubtful"], False), doubtful)
    latest = pc.max_element_wise(submit, start, end, columns["modified"])
    own = pc.multiply(latest, 1e9).cast(pa.int64(), safe=False).cast(TIME)
    columns["revision_at"] = pc.coalesce(columns["revision_at"], own)


def _state(raw: pa.Array) -> pa.Array:
    """The first word of a state in upper case, as without `by 1000`, and without a trailing `+`."""
    codes = pc.utf8_upper(pc.fill_null(raw, "")).dictionary_encode()
    words = [text.split(" ")[0].rstrip("+") for text in codes.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(codes.indices)


def _node_lists(lists: pa.Array) -> pa.Array:
    """Node lists, empty where the word for none stands."""
    return pc.if_else(pc.is_in(lists, _NO_NODES), "", lists)


def node_counts(known: pa.Array, lists: pa.Array) -> pa.Array:
    """`told`, else the number of nodes in the list; null where that is empty or no list."""
    if not known.null_count:
        return known
    codes = pc.if_else(pc.is_null(known), lists, "").dictionary_encode()
    counts = [_node_count(text) for text in codes.dictionary.to_pylist()]
    return pc.coalesce(known, pa.array(counts, known.type).take(codes.indices))


def _node_count(text: str) -> int | None:
    try:
        return len(expand(text)) or None
    except JobDataError:
        return None  # counted where the nodes are written


def _applications(given: pa.Array, names: pa.Array) -> pa.Array:
    """`told`, else the first word of the job's name without its folder, suffix and trailing numbers."""
    word = pc.replace_substring_regex(names, r"^\s*([^\s]*).*$", r"\1")
    word = pc.replace_substring_regex(word, r"^.*/", "")
    word = pc.replace_substring_regex(word, _SUFFIX, "")
    word = pc.replace_substring_regex(word, _RUN_NUMBER, "")
    word = pc.if_else(pc.equal(word, ""), names, word)
    return pc.if_else(pc.equal(given, ""), word, given)


def _keys(columns: Mapping[str, pa.Array]) -> pa.Array:
    """`CLUSTER/SLUID`, else `CLUSTER/RAW_ID/SUBMIT`, followed by `/rN` where restarts are known.

    Scheduler ids wrap, are recycled, and a requeue keeps them, so an id alone never identifies a run.
    """
    text = pa.string()
    number = pc.binary_join_element_wise(columns["raw_id"].cast(text), columns["submit"].cast(text), "/")
    own = pc.if_else(pc.equal(columns["sluid"], ""), number, columns["sluid"])
    restarts = columns["restarts"]
    tail = pc.fill_null(pc.binary_join_element_wise("", restarts.cast(text), "/r"), "")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(columns["cluster"], own, "/"), tail, "")
