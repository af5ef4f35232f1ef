"""Progressive layouts: an OST is compared by the files whose bytes lie on it, component by component."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.darshan.convert import convert, open_converted, opened_job
from laggard_aggregator.jobs.darshan.records import verdict_records
from laggard_aggregator.jobs.darshan.verdict import JobVerdict, judge
from tests.naive_darshan import osts_of_bytes
from tests.support.builders.darshan_log import POSIX, LogWriter
from tests.support.darshan import skip_without_darshan

skip_without_darshan()
MIB = 1 << 20
OSTS = 12
EVERY = list(range(OSTS))


def judged(log: LogWriter, folder: Path) -> JobVerdict:
    convert(log.write(folder / "a.darshan"), 0, folder)
    return judge(opened_job([folder]))


def log_of(size: int, seconds: dict[int, float], beyond: list[tuple[int, int, list[int]]]) -> LogWriter:
    """Four files an OST of `size` bytes, whose first 4 MiB lie on it; `beyond`: their other components."""
    log = LogWriter(processes=4 * OSTS, seconds=700)
    chance = np.random.default_rng(3)
    for rank in range(4 * OSTS):
        name, ost = f"/scratch/out.{rank}", rank % OSTS
        end = 1.0 + seconds.get(ost, 10.0) * float(chance.lognormal(0, 0.05))
        log.posix(name, rank, "write", 1.0, end, requests=4, bytes=size, MAX_BYTE_WRITTEN=size - 1)
        log.composite(name, [(0, 4 * MIB, [ost]), *beyond], rank)
    return log


def test_files_that_end_in_their_first_component_lie_on_its_ost_alone(tmp_path: Path) -> None:
    found = judged(log_of(MIB, {5: 300.0}, [(4 * MIB, -1, EVERY)]), tmp_path)
    assert [(each.kind, each.component) for each in found.findings] == [("ost", "OST5")]
    stripes = open_converted(tmp_path, "darshan_file")["stripe_count"]
    assert set(stripes.to_pylist()) == {1}


def test_files_beyond_their_known_components_blame_no_ost(tmp_path: Path) -> None:
    found = judged(log_of(64 * MIB, {5: 300.0}, []), tmp_path)
    assert not [each for each in found.findings if each.kind == "ost"]
    assert not len(open_converted(tmp_path, "job_ost"))
    told = [record["reason"] for record in verdict_records(found) if record["record"] == "not_judged"]
    assert "48 files on Lustre, whose layout is unknown or known in part, left out" in told


def test_files_in_all_components_lie_on_all_of_them(tmp_path: Path) -> None:
    judged(log_of(64 * MIB, {}, [(4 * MIB, 32 * MIB, [20]), (32 * MIB, -1, [21, 22])]), tmp_path)
    rows = open_converted(tmp_path, "job_ost")
    first = rows.filter(pa.compute.equal(rows["file_id"], rows["file_id"][0]))
    assert first["ost"].to_pylist() == [0, 20, 21, 22]


def test_the_rank_that_saw_most_of_the_layout_counts(tmp_path: Path) -> None:
    log = LogWriter(processes=2)
    for rank in range(2):
        log.posix("/scratch/a", rank, "write", 1.0, 2.0, MAX_BYTE_WRITTEN=9 * MIB)
    log.composite("/scratch/a", [(0, MIB, [3])], 0)
    log.composite("/scratch/a", [(0, MIB, [3]), (MIB, 16 * MIB, [4, 5])], 1)
    judged(log, tmp_path)
    assert open_converted(tmp_path, "job_ost")["ost"].to_pylist() == [3, 4, 5]


COMPONENTS = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(-1, 9), max_size=4)), min_size=1, max_size=5
)


@given(COMPONENTS, st.booleans(), st.integers(-1, 40), st.sampled_from(["READ", "WRITTEN"]))
def test_osts_are_those_of_the_bytes(
    parts: list[tuple[int, list[int]]], endless: bool, highest: int, word: str
) -> None:
    begin, components = 0, []
    for length, osts in parts:
        components.append((begin, begin + length, osts))
        begin += length
    if endless:
        components[-1] = (components[-1][0], -1, components[-1][2])
    log = LogWriter(processes=1)
    log.record(POSIX, "/scratch/a", 0, OPENS=1, WRITES=1, **{f"MAX_BYTE_{word}": highest})
    log.composite("/scratch/a", components, 0)
    with TemporaryDirectory() as name:
        folder = Path(name)
        convert(log.write(folder / "a.darshan"), 0, folder)
        found = open_converted(folder, "job_ost")["ost"].to_pylist()
    assert found == osts_of_bytes(components, max(highest, 0))


@pytest.mark.parametrize("count", [-1, 0])
def test_components_that_claim_fewer_stripes_than_the_record(tmp_path: Path, count: int) -> None:
    log = LogWriter(processes=1)
    log.posix("/scratch/a", 0, "write", 1.0, 2.0, MAX_BYTE_WRITTEN=9)
    log.composite("/scratch/a", [(0, 4, [1]), (4, -1, [2])], 0)
    region = log.region(8)
    region[32 + 8 : 32 + 16] = count.to_bytes(8, "little", signed=True)
    judged(log, tmp_path)
    assert set(open_converted(tmp_path, "job_ost")["ost"].to_pylist()) <= {1, 2}
