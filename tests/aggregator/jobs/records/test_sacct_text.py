"""sacct's text: all that breaks naive joins, in any order of columns; broken rows are counted."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.records.sources.sacct_text import BLOCK_BYTES
from laggard_common.errors import ConfigError, InputError
from tests.support.job_records import FOLDER, read_bytes, read_rows

HEADER = "JobIDRaw|JobID|State|Submit|Start|End|ElapsedRaw|NodeList"


def test_records_of_a_text() -> None:
    rows, report = read_rows(FOLDER / "sacct.txt")
    by_key = {row["job_key"]: row for row in rows}
    assert len(by_key) == len(rows) == report.records == 13
    assert report.steps == 2
    first = by_key["c1/41/1700000000"]
    assert (first["user"], first["account"], first["application"]) == ("ann", "phys", "wrf")
    assert (first["node_list"], first["node_count"], first["cpus"], first["exit_code"]) == (
        "n[01,03-04]",
        3,
        12,
        0,
    )
    array = by_key["c1/50/1700000000"]
    assert (array["job"], array["array_job"], array["array_task"], array["exit_code"]) == ("47_3", 47, 3, 3)
    pending = by_key["c1/47/1700000000"]
    assert (pending["array_job"], pending["array_task"], pending["start"], pending["node_list"]) == (
        47,
        None,
        None,
        "",
    )
    het = by_key["c1/61/1700000000"]
    assert (het["job"], het["het_job"], het["het_offset"]) == ("60+1", 60, 1)
    assert by_key["c1/91/1700000000"]["exit_code"] == 128 + 9


def test_a_requeue_and_a_resize_are_runs_of_their_own() -> None:
    rows, _ = read_rows(FOLDER / "sacct.txt")
    runs = {row["job_key"]: (row["state"], row["start"], row["end"]) for row in rows}
    assert runs["c1/70/1700000000"] == ("REQUEUED", 1700000010, 1700000050)
    assert runs["c1/70/1700000050"] == ("RUNNING", 1700000180, None)
    assert runs["c1/80/1700000000"] == ("RESIZING", 1700000010, 1700000060)
    assert runs["c1/80/1700000060"] == ("COMPLETED", 1700000060, 1700000090), "clipped to its submission"


def test_ends_that_slurm_cannot_know_are_doubtful() -> None:
    rows, _ = read_rows(FOLDER / "sacct.txt")
    doubtful = {row["name"] for row in rows if row["doubtful"]}
    assert doubtful == {"again", "lost", "dbd"}
    cancelled = next(row for row in rows if row["name"] == "never")
    assert (cancelled["state"], cancelled["start"], cancelled["node_list"]) == ("CANCELLED", None, "")


def test_a_run_requeued_before_slurmdbd_was_told_of_it_starts_in_doubt() -> None:
    rows, _ = read_bytes(
        b"JobIDRaw|State|Submit|Eligible|Start|End|NodeList\n"
        b"1|REQUEUED|100|100|None|200|n1\n"
        b"2|REQUEUED|198|198|None|200|n1\n"
        b"3|REQUEUED|100|199|Unknown|200|n1\n"
        b"4|CANCELLED by 0|100|100|None|200|None assigned\n"
        b"5|REQUEUED|100|100|150|200|n1\n"
    )
    times = {row["raw_id"]: (row["start"], row["end"], row["doubtful"]) for row in rows}
    assert times[1] == (195, 200, True)
    assert times[2] == (198, 200, True), "not before its submission"
    assert times[3] == (199, 200, True), "nor before it could run"
    assert times[4] == (None, 200, False), "never ran"
    assert times[5] == (150, 200, True)


def test_broken_rows_are_counted_and_named() -> None:
    rows, report = read_rows(FOLDER / "sacct.txt")
    assert report.broken == {
        "fewer columns than the header": 1,
        "no state of a job": 1,
        "expected times such as 2024-01-16T10:00:00, or seconds (SLURM_TIME_FORMAT=%s)": 1,
    }
    assert any(named.startswith("line 16: fewer columns") for named in report.named)
    assert next(row["name"] for row in rows if row["raw_id"] == 93) == "a|b"


def test_columns_in_any_order_and_both_separators() -> None:
    lines = (FOLDER / "sacct.txt").read_text().splitlines()
    kept = [line.split("|") for line in lines if line.count("|") == lines[0].count("|")]
    expected, _ = read_bytes("\n".join("|".join(cells) for cells in kept).encode())
    order = list(range(len(kept[0])))
    rng = random.Random(7)
    for separator in ("|", "\x1f"):
        rng.shuffle(order)
        text = "\n".join(separator.join(cells[at] for at in order) for cells in kept)
        assert read_bytes(text.encode())[0] == expected
        assert read_bytes(text.replace("\n", separator + "\n").encode())[0] == expected, "as with -p"


def test_a_name_in_the_middle_breaks_its_own_rows_only() -> None:
    text = "JobIDRaw|JobName|State|Submit|Start|End|NodeList\n"
    text += "1|a|b|COMPLETED|10|10|20|n1\n2|good|COMPLETED|10|10|20|n1\n3|two\nlines|COMPLETED|10|10|20|n1\n"
    rows, report = read_bytes(text.encode())
    assert [row["raw_id"] for row in rows] == [2]
    assert sum(report.broken.values()) == 3


def test_files_put_together_and_rows_over_blocks() -> None:
    filler = "x" * 8000
    row = "|".join(["{0}", "{0}", "COMPLETED", "10", "10", "20", "10", "n1", filler])
    header = HEADER + "|WorkDir"
    count = 2 * BLOCK_BYTES // len(filler)
    text = "\n".join(
        [header, *(row.format(at + 1) for at in range(count)), header, row.format(count + 1), ""]
    )
    rows, report = read_bytes(text.encode())
    assert len(rows) == count + 1
    assert not report.broken


def test_a_header_with_columns_in_another_order_is_no_row() -> None:
    text = HEADER + "\n1|1|COMPLETED|10|10|20|10|n1\n" + HEADER.replace("JobIDRaw|JobID", "JobID|JobIDRaw")
    with pytest.raises(InputError, match="line 3: another header than the first line's"):
        read_bytes((text + "\n2_1|2|COMPLETED|10|10|20|10|n1\n").encode())


def test_a_header_that_lacks_columns_is_one_error() -> None:
    with pytest.raises(InputError, match=r"no header of sacct -P with Submit, NodeList: it begins"):
        read_bytes(b"JobID|State|Start|End\n")
    with pytest.raises(InputError, match="is empty"):
        read_bytes(b"")
    with pytest.raises(ConfigError, match="no such time zone"):
        read_bytes(b"", zone="Mars/Olympus")


def test_local_times_need_a_zone() -> None:
    text = HEADER + "\n1|1|COMPLETED|2025-07-01T12:00:00|2025-07-01T12:00:00|2025-07-01T13:00:00|3600|n1\n"
    with pytest.raises(InputError, match="--timezone"):
        read_bytes(text.encode())
    rows, _ = read_bytes(text.encode(), zone="Europe/Berlin")
    assert (rows[0]["submit"], rows[0]["end"]) == (1751364000, 1751367600)
    offset = text.replace(":00|", ":00+0200|")
    assert read_bytes(offset.encode())[0] == rows


@pytest.mark.parametrize(
    ("times", "elapsed", "expected", "doubtful"),
    [
        # 2025-10-26, Berlin: 02:00 to 03:00 occurs twice, first at 00:00 UTC.
        (("01:30:00", "02:30:00", "02:40:00"), 600, (1761436200 - 1800, 1761438600, 1761439200), True),
        (("01:30:00", "02:30:00", "02:10:00"), 2400, (1761434400, 1761438600, 1761441000), False),
        (("01:30:00", "01:40:00", "02:40:00"), 7200, (1761434400 + 600, 1761435600, 1761442800), False),
        (("01:30:00", "02:30:00", "03:30:00"), 3600, (1761434400, 1761442200, 1761445800), False),
    ],
)
def test_the_hour_that_occurs_twice(
    times: tuple[str, str, str], elapsed: int, expected: tuple[int, int, int], doubtful: bool
) -> None:
    submit, start, end = (f"2025-10-26T{each}" for each in times)
    text = f"{HEADER}\n1|1|COMPLETED|{submit}|{start}|{end}|{elapsed}|n1\n"
    rows, report = read_bytes(text.encode(), zone="Europe/Berlin")
    row = rows[0]
    assert row["doubtful"] is doubtful
    assert report.ambiguous == int(doubtful)
    assert (row["start"], row["end"]) == expected[1:]
    assert row["end"] - row["start"] == elapsed


@given(st.binary(max_size=300), st.sampled_from(["|", "\x1f"]))
def test_any_bytes_are_rows_or_counted(data: bytes, separator: str) -> None:
    text = HEADER.replace("|", separator).encode() + b"\n" + data
    try:
        rows, report = read_bytes(text, zone="UTC")
    except InputError:
        return
    assert len(rows) == report.records


@given(
    st.lists(st.lists(st.text(alphabet="0123456789TUnknow-:|PENDIG", max_size=12), min_size=8, max_size=8))
)
def test_any_cells_are_rows_or_counted(cells: list[list[str]]) -> None:
    text = "\n".join([HEADER, *("|".join(row) for row in cells), ""])
    rows, report = read_bytes(text.encode(), zone="UTC")
    assert len(rows) == report.records
