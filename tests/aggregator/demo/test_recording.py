import lzma
from pathlib import Path

import pytest

from laggard_aggregator.demo import recording
from laggard_aggregator.demo.recording import read_recording
from laggard_common.errors import InputError
from tests.support.builders import recordings


def read(tmp_path: Path, content: str) -> recording.Recording:
    return read_recording(recordings.write(tmp_path / "r.xz", content))


def test_a_recording_is_read_row_for_row(tmp_path: Path) -> None:
    got = read(tmp_path, recordings.text())
    assert got.luns == recordings.LUNS
    assert got.faulty == recordings.FAULTY
    assert (got.fault_start, got.fault_end) == (recordings.START + 20.004, recordings.START + 40.009)
    assert len(got.samples) == 61
    assert got.seconds == pytest.approx(60.00006)
    assert got.samples[7].rows["loop21"] == (recordings.row("loop21", 7) + "\n").encode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.replace("# faulty: loop23\n", ""), "header faulty: not one of the luns: ''"),
        (lambda t: t.replace("# luns: loop20 ", "# luns: loop20 loop20 "), "header luns"),
        (lambda t: t.replace("# luns: ", "# lums: "), "header luns: expected 4-64 different names, got 0"),
        (lambda t: t.replace("fault_end: 1760000040", "fault_end: 1760000010"), "not in order"),
        (lambda t: t.replace("fault_start: 1760000020.004", "fault_start: soon"), "not in order"),
        (lambda t: t.replace(recordings.row("loop22", 9) + "\n", ""), "the rows at 1760000009.000009"),
        (lambda t: t.replace("@ 1760000030.", "@ 1760000028."), "time does not advance at 1760000028"),
        (
            lambda t: t.replace(recordings.row("loop20", 3), "   7 20 loop20 nonsense"),
            r"r\.xz:29: neither a time",
        ),
        (
            lambda t: t.replace(recordings.row("loop20", 3), recordings.row("loop20", 3) + " 7"),
            "have other columns",
        ),
        (lambda t: t[: t.index("@ 1760000048")], "ends less than 10 s after the fault"),
        (lambda t: "", "header luns"),
        (lambda t: t[: t.index("@")], "0 samples"),
        (lambda t: recordings.row("loop20", 0) + "\n" + t, r"r\.xz:1: neither"),
    ],
)
def test_what_is_no_recording_is_one_clear_line(tmp_path: Path, change, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=says) as caught:
        read(tmp_path, change(recordings.text()))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_recording(tmp_path / "none.xz")
    with pytest.raises(InputError, match="Is a directory"):
        read_recording(tmp_path)


def test_a_truncated_or_damaged_file(tmp_path: Path) -> None:
    whole = lzma.compress(recordings.text().encode())
    path = tmp_path / "r.xz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="truncated"):
        read_recording(path)
    path.write_bytes(b"not xz at all")
    with pytest.raises(InputError, match="not an xz file"):
        read_recording(path)


def test_a_bomb_is_refused_before_it_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_TEXT_BYTES", 2_000_000)
    path = tmp_path / "r.xz"
    path.write_bytes(lzma.compress(b"# a: b\n" * 1_000_000))
    with pytest.raises(InputError, match="more than 2000000 bytes"):
        read_recording(path)
