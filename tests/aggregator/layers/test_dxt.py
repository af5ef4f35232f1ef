"""Dumps of darshan-dxt-parser, one or several in a file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.cli.main import main
from laggard_common.trace_formats.dxt import DxtParser
from tests.aggregator.layers.analysed import analysed

HEAD = """\
# darshan log version: 3.41
# exe: /apps/x in
# jobid: 4711
{start}# nprocs: 1

# DXT_POSIX module data

# DXT, file_id: 7, file_name: {file}
# DXT, rank: 0, hostname: cn-17
# DXT, write_count: 16, read_count: 0
# Module    Rank  Wt/Rd  Segment          Offset          Length    Start(s)      End(s)
"""


def dump(start: int | None, file: str, count: int = 4) -> str:
    """A dump with writes of 1 MiB one after another."""
    lines = HEAD.format(start="" if start is None else f"# start_time: {start}\n", file=file)
    for i in range(count):
        times = f"{1 + i / 100:11.4f} {1.008 + i / 100:11.4f}"
        lines += f" X_POSIX       0  write  {i:9} {i << 20:15} {1 << 20:15} {times}\n"
    return lines


def test_each_dump_has_its_own_start(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    path.write_text(dump(1_700_000_000, "/s/a") + dump(1_700_000_100, "/s/b") + dump(1_700_000_050, "/s/a"))
    found = analysed(path).layer("posix")
    assert (found["requests"], found["runs"], found["max_concurrency"]) == (12, 3, 1)
    assert found["span_seconds"] == pytest.approx(100.038)


@pytest.mark.parametrize("word", ["WARNING", "ERROR"])
def test_a_module_that_ran_out_of_memory_is_told(tmp_path: Path, word: str) -> None:
    path = tmp_path / "all.txt"
    said = f"# *{word}*: The DXT_POSIX module contains incomplete data!\n#            This happens when\n"
    path.write_text(dump(1_700_000_000, "/s/a").replace("# DXT, file_id", f"{said}# DXT, file_id"))
    found = analysed(path)
    assert found.layer("posix")["requests"] == 4
    assert "Darshan ran out of memory for DXT_POSIX" in found.remarks


def test_dumps_with_and_without_a_start_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.txt"
    path.write_text(dump(1_700_000_000, "/s/a") + dump(None, "/s/b"))
    assert main(["layers", str(path)]) == 2
    assert "1 of its 2 dumps have no start_time" in capsys.readouterr().err
    path.write_text(dump(None, "/s/b"))
    assert analysed(path).layer("posix")["requests"] == 4


@given(st.lists(st.tuples(st.none() | st.integers(1, 10**9), st.sampled_from("abc"), st.integers(0, 5))))
def test_times_of_any_dumps(dumps: list[tuple[int | None, str, int]]) -> None:
    parser = DxtParser()
    lines = "".join(dump(*each) for each in dumps).splitlines()
    records = [record for line in lines for record in parser.parse(line)]
    assert [(r.time_ns // 10**9, r.path) for r in records] == [
        ((start or 0) + 1, file) for start, file, count in dumps for _ in range(count)
    ]
    assert parser.dumps == sum(count > 0 for *_, count in dumps)
    assert parser.without_start == sum(count > 0 and start is None for start, _, count in dumps)
