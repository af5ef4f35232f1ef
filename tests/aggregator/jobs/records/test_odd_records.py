"""Records as sites have them: units, forms of times, failed and several queries, dialects of PBS."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.store import JobStore
from laggard_common.errors import InputError
from tests.support.job_records import read_bytes, read_table

HEADER = "JobIDRaw|State|Submit|Start|End|NNodes|NCPUS|NodeList"


def sacct(*rows: str) -> bytes:
    return "\n".join([HEADER, *rows, ""]).encode()


def slurm_json(*numbers: int, **more: object) -> str:
    time = {"submission": 1700000000, "start": 1700000010, "end": 1700000020}
    job = {"state": {"current": ["COMPLETED"]}, "time": time, "nodes": "n1"}
    return json.dumps({"jobs": [{"job_id": number, **job} for number in numbers], **more})


def flux_json(*numbers: int) -> str:
    job = {"t_submit": 1700000000.5, "result": "COMPLETED", "nodelist": "n1"}
    return json.dumps({"jobs": [{"id": number, **job} for number in numbers]})


FAILED = [{"description": "no jobs", "error": "database is away", "error_number": 7000, "source": "f()"}]


@pytest.mark.parametrize(("power", "unit"), [(1, "K"), (2, "M"), (3, "G")])
@pytest.mark.parametrize("count", [1, 2, 1023])
def test_exact_numbers_with_a_unit(count: int, power: int, unit: str) -> None:
    (row,), report = read_bytes(sacct(f"7|COMPLETED|1700000000|1700000001|1700000002|1|{count}{unit}|n1"))
    assert row["cpus"] == count * 1024**power
    assert not report.doubts


def test_rounded_numbers_are_unknown_and_the_node_list_counts() -> None:
    row = "7|COMPLETED|1700000000|1700000001|1700000002|2.05K|131.25K|n[1-2100]"
    (found,), report = read_bytes(sacct(row))
    assert (found["node_count"], found["cpus"]) == (2100, None)
    assert sum(report.doubts.values()) == 2
    assert all("--noconvert" in reason for reason in report.doubts)
    assert not report.broken


@given(st.text("0123456789KMGTPkm.-+e ", max_size=8))
def test_any_count_is_a_number_unknown_or_told(text: str) -> None:
    rows, report = read_bytes(sacct(f"7|COMPLETED|1700000000|1700000001|1700000002|1|{text}|n1"))
    assert len(rows) + sum(report.broken.values()) == 1
    if rows and rows[0]["cpus"] is None:
        assert text == "" or report.doubts


def test_times_with_a_space() -> None:
    row = "7|COMPLETED|2024-01-16 10:00:00|2024-01-16 10:00:10|2024-01-16 10:00:20|1|1|n1"
    (found,), report = read_bytes(sacct(row), zone="UTC")
    assert (found["submit"], found["start"], found["end"]) == (1705399200, 1705399210, 1705399220)
    assert not report.broken


@pytest.mark.parametrize("time", ["16 Jan 10:00", "Ystday 10:00", "01/16/24-10:00:00", "16.01.2024 10:00:00"])
def test_other_forms_of_times_are_named(time: str) -> None:
    rows, report = read_bytes(sacct(f"7|COMPLETED|{time}|{time}|{time}|1|1|n1"), zone="UTC")
    assert not rows
    (reason,) = report.broken
    assert "SLURM_TIME_FORMAT" in reason
    assert report.named[0].startswith("line 2: ")


def test_an_unknown_submission_is_another_reason() -> None:
    _, report = read_bytes(sacct("7|COMPLETED|Unknown|1700000000|1700000001|1|1|n1"))
    assert report.broken == {"no time of submission": 1}


@given(
    st.lists(st.lists(st.integers(1, 1 << 40), max_size=3), min_size=1, max_size=4),
    st.sampled_from(["", "\n", "\r\n\n", " "]),
    st.sampled_from(["sacct", "flux"]),
)
def test_documents_put_together_are_all_read(several: list[list[int]], between: str, form: str) -> None:
    document = slurm_json if form == "sacct" else flux_json
    rows, _ = read_bytes(between.join(document(*numbers) for numbers in several).encode(), form)
    assert [row["raw_id"] for row in rows] == [number for numbers in several for number in numbers]


@pytest.mark.parametrize("tail", ["{", "x", "]", '{"jobs": [', '{"other": 1}'])
def test_what_follows_a_document_is_not_dropped(tail: str) -> None:
    with pytest.raises(InputError):
        read_bytes((slurm_json(1) + tail).encode())


def test_json_behind_white_space() -> None:
    rows, _ = read_bytes(b"\n  " + slurm_json(5).encode())
    assert [row["raw_id"] for row in rows] == [5]


@pytest.mark.parametrize(
    "text",
    [
        slurm_json(errors=FAILED),
        json.dumps({"errors": FAILED, "jobs": []}),
        json.dumps({"meta": {}, "errors": FAILED}),
        slurm_json() + slurm_json(errors=FAILED),
    ],
)
def test_a_failed_query_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="no jobs: database is away"):
        read_bytes(text.encode())


@pytest.mark.parametrize(
    "texts", [[slurm_json(1, errors=FAILED)], [slurm_json(errors=FAILED), slurm_json(1)]]
)
def test_a_query_that_failed_in_part_is_told(texts: Sequence[str]) -> None:
    rows, report = read_bytes("\n".join(texts).encode())
    assert len(rows) == 1
    (reason,) = report.doubts
    assert "database is away" in reason


@pytest.mark.parametrize("errors", [[], None, {}])
def test_an_empty_query_without_errors_is_empty(errors: object) -> None:
    assert read_bytes(slurm_json(errors=errors).encode())[0] == []


def test_a_broken_element_names_its_place() -> None:
    _, report = read_bytes(slurm_json(1, 0).encode())
    assert report.named[0].startswith("element 2 of jobs: ")


@pytest.mark.parametrize("nodes", ["node[01-03", "n[5-1]", "n[a-b]", "a b"])
def test_a_bad_node_list_names_its_job(tmp_path: Path, nodes: str) -> None:
    path = tmp_path / "sacct.txt"
    first = "5|COMPLETED|1700000000|1700000001|1700000002|1|1|n1"
    path.write_bytes(sacct(first, f"7|COMPLETED|1700000000|1700000001|1700000002|3|1|{nodes}"))
    report = ReadReport()
    store = JobStore(tmp_path / "archive", "site", report)
    store.add(read_table(path))
    store.flush()
    assert report.bad_node_lists == 1
    assert report.named[0].startswith("job 7: node list: ")


BOTH = "user=ann queue=q ctime=1700000000 start=1700000010 end=1700003610"
TORQUE = "owner=ann@login Resource_List.neednodes=1:ppn=1"
PROFESSIONAL = "Resource_List.select=1:ncpus=1 run_count=1"


def pbs(more: str, hosts: str = "n1/0") -> bytes:
    return f"11/14/2023 22:20:00;E;9.srv;{BOTH} {more} exec_host={hosts}\n".encode()


def test_names_of_resources_with_a_hyphen() -> None:
    more = f"{PROFESSIONAL} Resource_List.ncpus=8 Resource_List.net-type=ib Resource_List.place=excl"
    (row,), report = read_bytes(pbs(f"{more} Resource_List.q-x=1 Exit_status=0"), "pbs")
    assert (row["cpus"], row["exclusive"], report.named) == (8, True, [])


def test_the_record_of_a_whole_array_is_skipped() -> None:
    rows, report = read_bytes(
        pbs("").replace(b"9.srv", b"9[].srv") + pbs("").replace(b"9.srv", b"9[3]"), "pbs"
    )
    assert [(row["array_job"], row["array_task"], report.named) for row in rows] == [(9, 3, [])]


@pytest.mark.parametrize(
    ("dialect", "status", "state"),
    [
        *((TORQUE, -11, "TIMEOUT"), (TORQUE, -12, "TIMEOUT"), (TORQUE, -10, "OUT_OF_MEMORY")),
        *((TORQUE, -29, "FAILED"), (TORQUE, -13, "REQUEUED"), (TORQUE, -4, "FAILED")),
        *((PROFESSIONAL, -11, "REQUEUED"), (PROFESSIONAL, -29, "TIMEOUT"), (PROFESSIONAL, -10, "FAILED")),
        *((PROFESSIONAL, -27, "OUT_OF_MEMORY"), (PROFESSIONAL, -17, "CANCELLED"), ("", -11, "FAILED")),
        *(("", status, "FAILED") for status in (-10, -29, 1)),
        *((dialect, 0, "COMPLETED") for dialect in (TORQUE, PROFESSIONAL, "")),
        *((dialect, 271, "CANCELLED") for dialect in (TORQUE, PROFESSIONAL, "")),
        *((dialect, -3, "REQUEUED") for dialect in (TORQUE, PROFESSIONAL, "")),
    ],
)
def test_a_status_is_read_by_its_dialect(dialect: str, status: int, state: str) -> None:
    (row,), _ = read_bytes(pbs(f"{dialect} Exit_status={status}"), "pbs")
    assert row["state"] == state


@pytest.mark.parametrize(
    ("hosts", "more", "cpus"),
    [
        *(("n1/0-3+n2/0-3", "", 8), ("n1/0+n1/1+n2/0", "", 3), ("n1/0-3,8,10-11", "", 7), ("n1/2", "", 1)),
        *(("n1/0*4+n2/1", "", 5), ("n1", "", None), ("n1/3-0", "", None), ("n1/x", "", None)),
        ("n1/0*1", "exec_vnode=(n1:ncpus=12:mem=1gb)+(n2:ncpus=4)", 16),
        ("n1/0-3", "total_execution_slots=4 unique_node_count=1", 4),
        ("n1/0", "Resource_List.ncpus=24", 24),
        ("n1/0", "Resource_List.ncpus=24 resources_used.ncpus=36", 36),
        ("n1/0-3", "resources_used.ncpus=0", 4),
    ],
)
def test_cpus_of_each_dialect(hosts: str, more: str, cpus: int | None) -> None:
    (row,), _ = read_bytes(pbs(f"Exit_status=0 {more}", hosts), "pbs")
    assert row["cpus"] == cpus


@pytest.mark.parametrize(
    "vnodes",
    [
        "(n1[0]:ncpus=4:mem=1gb)+(n1[1]:ncpus=4)+(n2[0]:ncpus=8)",
        "(n1[0]:ncpus=1+n1[10]:ncpus=2)+(n2:ncpus=1)",
    ],
)
def test_vnodes_of_a_host_are_that_host(vnodes: str) -> None:
    (row,), _ = read_bytes(pbs(f"Exit_status=0 exec_vnode={vnodes}", ""), "pbs")
    assert row["node_list"] == "n1,n2"


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=6))
def test_slots_are_counted(ranges: list[tuple[int, int]]) -> None:
    hosts = "+".join(f"n{at}/{low}-{low + more}" for at, (low, more) in enumerate(ranges))
    (row,), _ = read_bytes(pbs("Exit_status=0", hosts), "pbs")
    assert row["cpus"] == sum(more + 1 for _, more in ranges)
