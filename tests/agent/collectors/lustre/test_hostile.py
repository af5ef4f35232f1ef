"""Input that no Lustre prints: no crash, one clear state, and the rest goes on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from laggard_agent.collectors.lustre.param_paths import ParamDump, parse_dump
from laggard_agent.collectors.lustre.parse import (
    Parsed,
    parse_histograms,
    parse_import,
    parse_job,
    parse_stats,
    split_jobs,
)
from laggard_common.errors import CollectError
from laggard_common.wire.codec import RAW, Encoder
from tests.support.builders.lustre import FIXTURES, Watched, copied, trees

OST = "proc/fs/lustre/obdfilter/scratch-OST0000"


def parse_jobs(data: bytes) -> Parsed:
    entries, leftovers = split_jobs(data)
    parsed = [parse_job(lines) for _, lines in entries]
    return Parsed((), (), (*leftovers, *(line for part in parsed for line in part.leftovers)), complete=True)


PARSERS: dict[str, Callable[[bytes], Parsed]] = {
    "stats": parse_stats,
    "brw_stats": parse_histograms,
    "rpc_stats": parse_histograms,
    "md_stats": parse_stats,
    "import": parse_import,
    "job_stats": parse_jobs,
}
FILES = sorted(path for path in FIXTURES.rglob("*") if path.name in PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_truncated_at_every_byte(name: str) -> None:
    path = next(path for path in FILES if path.name == name)
    data = path.read_bytes()
    whole = PARSERS[name](data)
    assert whole.leftovers == ()
    for end in range(len(data)):
        parsed = PARSERS[name](data[:end])
        assert len(parsed.values) <= len(whole.values)
        assert len(parsed.leftovers) <= 2


@pytest.mark.parametrize("name", PARSERS)
def test_garbage(name: str) -> None:
    parse = PARSERS[name]
    for data in (
        b"\0" * 1000,
        bytes(range(256)) * 20,
        b"{" * 1000,
        b"\n" * 1000,
        b"9" * 100_000,
        b":" * 5000,
    ):
        parsed = parse(data)
        assert all(0 <= value < 2**64 for value in parsed.values)
        assert all(len(line) <= 200 for line in parsed.leftovers)


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(
    "line",
    [
        b"x" + b" " * 200_000 + b"y",
        b" " * 20_000 + b"x" + b" " * 20_000 + b"y",
        b"rpcs " * 40_000,
        b"% cum % " * 25_000,
        b", hist: {" * 20_000,
        b"a: " * 70_000,
    ],
)
def test_lines_that_could_keep_a_parser_busy(name: str, line: bytes) -> None:
    """A pattern that tries every pair of places would take minutes."""
    parsed = PARSERS[name](b"snapshot_time: 1.2 (secs.nsecs)\n- job_id: x\n" + line)
    assert len(parsed.leftovers) >= 1
    assert all(len(text) <= 200 for text in parsed.leftovers)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0\xff" * 3000,
        b"snapshot_time x\n",
        b"snapshot_time 1.2 secs.nsecs\nopen -1 samples [reqs]\n",
        b"snapshot_time 1.2 secs.nsecs\nopen 99999999999999999999999 samples [reqs]\n",
        b"snapshot_time 1.2 secs.nsecs\nopen 5 samples [parsecs]\n",
        b"x" * 1_000_000,
    ],
)
def test_a_bad_file_spoils_only_its_own_values(tmp_path: Path, text: bytes) -> None:
    root = copied("oss-2.10", tmp_path)
    (root / OST / "stats").write_bytes(text)
    watched = Watched(trees(root))
    for _ in range(2):
        watched.sample()
        assert watched.error == ""
        assert list(watched.collector.leftovers) == [str(root / OST / "stats")]
        assert watched.node("lines_not_understood") >= 1  # type: ignore[operator]
        assert set(watched.row("lustre_ost", "scratch-OST0000").values()) == {None}
        assert watched.row("lustre_ost", "scratch-OST0001")["read_bytes_samples"] == 1100
        assert watched.row("lustre_brw", "scratch-OST0000")["disk_ios_in_flight_read_2"] == 120


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    with (root / OST / "stats").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    watched = Watched(trees(root)).sample()
    assert watched.error == f"{root / OST / 'stats'}: longer than 67108864 bytes"
    assert watched.ids("lustre_ost") == ["scratch-OST0001"]
    assert watched.node("files_failed") == 1


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    (root / OST / "stats").unlink()
    (root / OST / "stats").mkdir()
    watched = Watched(trees(root)).sample()
    assert watched.error == f"{root / OST / 'stats'}: Is a directory"
    assert watched.ids("lustre_ost") == ["scratch-OST0001"]


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "proc/fs/lustre").mkdir(parents=True)
    (tmp_path / "proc/fs/lustre/obdfilter").write_text("not a folder\n")
    assert Watched(trees(tmp_path)).sample().node("devices") == 0


def close(path: Path) -> None:
    """Takes all permissions; skips where that means nothing, as to root."""
    path.chmod(0)
    if os.access(path, os.R_OK):
        path.chmod(0o700)
        pytest.skip("this user may read everything")


def test_permission_denied(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    close(root / OST / "stats")
    watched = Watched(trees(root)).sample()
    assert watched.error == f"{root / OST / 'stats'}: Permission denied"
    assert watched.ids("lustre_ost") == ["scratch-OST0001"]


def test_debugfs_that_is_closed(tmp_path: Path) -> None:
    root = copied("client-2.16", tmp_path)
    close(root / "sys/kernel/debug")
    try:
        watched = Watched(trees(root)).sample()
    finally:
        (root / "sys/kernel/debug").chmod(0o700)
    assert f"{root}/sys/kernel/debug: Permission denied" in watched.error
    assert watched.row("lustre_osc", "home-OST0001-osc")["import_state"] == 11


def test_debugfs_that_is_closed_on_a_node_without_lustre(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/debug").mkdir(parents=True)
    close(tmp_path / "sys/kernel/debug")
    try:
        watched = Watched(trees(tmp_path)).sample()
    finally:
        (tmp_path / "sys/kernel/debug").chmod(0o700)
    assert (watched.error, watched.node("devices")) == ("", 0)


def test_a_folder_of_devices_that_may_not_be_listed(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    close(root / "proc/fs/lustre/ost/OSS")
    try:
        watched = Watched(trees(root)).sample()
    finally:
        (root / "proc/fs/lustre/ost/OSS").chmod(0o700)
    assert watched.error == f"{root}/proc/fs/lustre/ost/OSS: Permission denied"
    assert watched.ids("lustre_ost") == ["scratch-OST0000", "scratch-OST0001"]


class Refusing:
    """Trees whose files of one name may not be read, as by another than root."""

    def __init__(self, root: Path, name: str, error: OSError) -> None:
        self._trees = trees(root)
        self._name = name
        self._error = error
        self.locate = self._trees.locate
        self.find = self._trees.find
        self.roots = self._trees.roots
        self.refresh = self._trees.refresh

    def read(self, place: str) -> bytes:
        """The bytes, or the error."""
        if place.endswith(self._name):
            raise CollectError(place, str(self._error.strerror)) from self._error
        return self._trees.read(place)


def test_what_may_not_be_read_is_told_once_and_counted() -> None:
    root = FIXTURES / "oss-2.10"
    watched = Watched(Refusing(root, "brw_stats", PermissionError(13, "Permission denied"))).sample()
    assert watched.error == f"{root / OST / 'brw_stats'}: Permission denied (and 1 more)"
    assert watched.node("files_failed") == 2
    assert watched.ids("lustre_ost") == ["scratch-OST0000", "scratch-OST0001"]
    assert "lustre_brw" not in watched.readings


def test_a_device_that_is_torn_down_while_it_is_read() -> None:
    root = FIXTURES / "client-2.16"
    watched = Watched(Refusing(root, "import", OSError(19, "No such device"))).sample()
    assert watched.error == ""
    assert watched.node("files_gone") == 9
    assert watched.row("lustre_osc", "home-OST0001-osc")["req_waittime_samples"] == 97


def test_more_counters_than_a_table_may_have(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    lines = "".join(f"made_{n} 1 samples [reqs]\n" for n in range(2000))
    path = root / OST / "stats"
    path.write_text(path.read_text() + lines)
    watched = Watched(trees(root)).sample()
    assert len(watched.readings["lustre_ost"].fields) == 1024
    assert watched.node("lines_not_understood") >= 900  # type: ignore[operator]
    assert watched.row("lustre_ost", "scratch-OST0000")["read_bytes_samples"] == 1200


def test_every_reading_can_be_encoded() -> None:
    for name in ("oss-2.10", "server-2.15", "client-2.16"):
        watched = Watched(trees(FIXTURES / name), job_stats=True).sample()
        for reading in watched.readings.values():
            indexes = range(len(reading.rows))
            assert Encoder(RAW).encode(indexes, [list(reading.rows)], [0])


def test_a_dump_that_is_gone(tmp_path: Path) -> None:
    watched = Watched(ParamDump(tmp_path / "none")).sample()
    assert watched.error == f"{tmp_path / 'none'}: No such file or directory"
    assert watched.readings == {}


def test_a_dump_truncated_at_every_byte() -> None:
    data = (FIXTURES / "client-2.17.lctl").read_bytes()
    whole = parse_dump(data)
    for end in range(len(data)):
        *before, last = [*parse_dump(data[:end]).items()] or [("", b"")]
        assert all(whole[name] == text for name, text in before)
        assert last[0] in {*whole, ""}
        assert data[:end].endswith(last[1])


@pytest.mark.parametrize("text", [b"", bytes(range(256)) * 40, b"a" * 1_000_000 + b"=1", b"=" * 10_000])
def test_a_dump_that_is_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "dump").write_bytes(text)
    watched = Watched(ParamDump(tmp_path / "dump"), job_stats=True).sample()
    assert (watched.error, watched.node("devices")) == ("", 0)


def test_a_dump_behind_a_mark_of_its_encoding(tmp_path: Path) -> None:
    data = (FIXTURES / "client-2.17.lctl").read_bytes()
    (tmp_path / "dump").write_bytes(b"\xef\xbb\xbf" + data)
    marked, plain = ParamDump(tmp_path / "dump"), ParamDump(FIXTURES / "client-2.17.lctl")
    for dump in (marked, plain):
        dump.refresh()
    assert marked.locate(("llite",), ("stats",)) == plain.locate(("llite",), ("stats",))
    assert plain.locate(("llite",), ("stats",)).devices


def test_a_dump_without_end(tmp_path: Path) -> None:
    with (tmp_path / "dump").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    watched = Watched(ParamDump(tmp_path / "dump")).sample()
    assert watched.error == f"{tmp_path / 'dump'}: longer than 67108864 bytes"
