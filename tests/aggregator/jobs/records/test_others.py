"""JSON of Slurm and Flux, PBS accounting, neutral records: hand-written samples, broken and hostile input."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.records.sources.inputs import FORMATS
from laggard_common.errors import InputError
from tests.support.job_records import FOLDER, read_bytes, read_rows


def test_data_parsers_say_the_same() -> None:
    old, _ = read_rows(FOLDER / "sacct-0.0.38.json")
    new, _ = read_rows(FOLDER / "sacct-0.0.42.json")
    assert old == new
    array, het = old
    assert (array["job_key"], array["job"], array["cpus"]) == ("c1/9/1700000000", "7_3", 8)
    assert (array["start"], array["end"], array["name"]) == (1700000010, 1700000100, "a|b\nc")
    assert (het["job"], het["state"], het["start"], het["node_list"]) == ("20+1", "PENDING", None, "")


@pytest.mark.parametrize("offset", [None, {"set": False, "infinite": False, "number": 0}])
def test_components_without_an_offset_are_not_all_the_first(offset: object) -> None:
    document = json.loads((FOLDER / "sacct-0.0.42.json").read_text())
    for job in document["jobs"]:
        job["het"]["job_offset"] = offset
    _, het = read_bytes(json.dumps(document).encode())[0]
    assert (het["job"], het["het_job"], het["het_offset"]) == (str(het["raw_id"]), 20, None)


def test_forecasts_of_the_controller_are_unknown() -> None:
    pending, between = read_rows(FOLDER / "squeue-0.0.38.json")[0]
    assert (pending["start"], pending["end"]) == (None, None)
    assert (between["state"], between["start"], between["node_list"]) == ("PENDING", None, "")


def test_pbs() -> None:
    rows, report = read_rows(FOLDER / "accounting.pbs", "pbs")
    started, ended, rerun, killed = rows
    assert started["job_key"] == ended["job_key"] == "c1/12.srv@1700000010"
    assert (ended["name"], ended["account"], ended["node_list"]) == ("my run", "chem", "n1,n2")
    assert (ended["state"], ended["exclusive"], ended["end"], started["end"]) == (
        "COMPLETED",
        True,
        1700000100,
        None,
    )
    assert rerun["job_key"] != killed["job_key"]
    assert (rerun["state"], rerun["array_task"], rerun["node_list"]) == ("REQUEUED", 4, "n3")
    assert (killed["state"], killed["doubtful"]) == ("CANCELLED", True)
    assert sum(report.broken.values()) == 2


def test_nodes_are_counted_where_the_source_has_only_their_names() -> None:
    told: list[dict[str, object]] = [
        {"nodes": ["a", "b", "a"]},
        {"nodes": "n[1-8]"},
        {"nodes": "n[1-"},
        {},
        {"node_count": 3},
    ]
    rows = [
        {"job": str(at), "submit": 1700000000, "state": "COMPLETED", **each}
        for at, each in enumerate(told, 1)
    ]
    found, _ = read_bytes("\n".join(map(json.dumps, rows)).encode(), "jsonl")
    assert [each["node_count"] for each in found] == [2, 8, None, None, 3]
    (_, ended, _, killed), _ = read_rows(FOLDER / "accounting.pbs", "pbs")
    assert (ended["node_count"], killed["node_count"]) == (2, 1)


def test_flux() -> None:
    (done, waiting), _ = read_rows(FOLDER / "flux.json", "flux")
    assert (done["user"], done["account"], done["state"]) == ("ann", "phys", "COMPLETED")
    assert (done["start"], done["end"], done["node_list"]) == (1700000010.5, 1700000100.5, "n[1-2]")
    assert (waiting["state"], waiting["start"], waiting["raw_id"]) == (
        "PENDING",
        None,
        (38 * 58 + 4) * 58 + 50,
    )


def test_jsonl() -> None:
    rows, report = read_rows(FOLDER / "jobs.jsonl", "jsonl")
    running, done = rows
    assert (running["job_key"], running["state"], running["exclusive"]) == (
        "sunway/4711/1700000000",
        "RUNNING",
        True,
    )
    assert (running["node_list"], running["partition"]) == ("vn000001,vn000002", "q_sw")
    assert (done["job_key"], done["state"]) == (
        "sunway/swap-17@1700000000/1700000000".rpartition("/")[0],
        "COMPLETED",
    )
    assert report.broken == {"no JSON": 1, "no job, or no time of submission": 1}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"jobs": {}}', '{"jobs": [', '{"jobs": [1 2]}', "[" * 100_000]
)
@pytest.mark.parametrize("form", ["flux"])
def test_text_that_is_no_json_is_one_error(form: str, text: str) -> None:
    with pytest.raises(InputError):
        read_bytes(text.encode(), form)


def test_deep_json_is_one_error() -> None:
    with pytest.raises(InputError):
        read_bytes(('{"jobs": [' + "[" * 100_000).encode())


@pytest.mark.parametrize("nodes", ["n1\ud800", ["n1\ud800"]])
def test_text_that_no_file_can_hold_stops_no_other_record(nodes: str | list[str]) -> None:
    jobs = [
        {"job": str(at), "submit": 1700000000, "state": "COMPLETED", "user": user, "nodes": nodes}
        for at, user in enumerate(("a\ud800b", "b"), 1)
    ]
    rows, _ = read_bytes("\n".join(map(json.dumps, jobs)).encode(), "jsonl")
    assert [(row["user"], row["node_list"]) for row in rows] == [("a?b", "n1?"), ("b", "n1?")]


def test_elements_over_many_blocks() -> None:
    job = json.loads((FOLDER / "sacct-0.0.38.json").read_text())["jobs"][0]
    several = [{**job, "job_id": at + 1, "filler": "x" * 5000} for at in range(1000)]
    rows, _ = read_bytes(json.dumps({"meta": {"jobs": 1}, "jobs": several}).encode())
    assert [row["raw_id"] for row in rows] == list(range(1, 1001))


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["set", "number", "id"]), inner)
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        *("job", "job_id", "id", "submit", "time", "state", "nodes", "exit_code", "array", "submit_time"),
        *("job_state", "t_submit", "result", "cluster", "sluid", "restarts", "nodelist", "start"),
    ]
)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=8), max_size=4), st.sampled_from(["sacct", "flux"]))
def test_any_objects_are_records_or_counted(jobs: list[dict[str, Any]], form: str) -> None:
    rows, report = read_bytes(json.dumps({"jobs": jobs}).encode(), form)
    assert len(rows) == report.records == len(jobs) - sum(report.broken.values())


@given(st.dictionaries(KEYS, VALUES, max_size=8))
def test_any_line_is_a_record_or_counted(job: dict[str, Any]) -> None:
    rows, report = read_bytes(json.dumps(job).encode(), "jsonl")
    assert len(rows) == 1 - sum(report.broken.values())


@given(st.binary(max_size=200), st.sampled_from(FORMATS))
def test_any_bytes_are_records_counted_or_one_error(data: bytes, form: str) -> None:
    try:
        rows, report = read_bytes(b"1/2;E;1;ctime=1 start=2 " + data if form == "pbs" else data, form)
    except InputError:
        return
    assert len(rows) == report.records
