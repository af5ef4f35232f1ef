"""Files in which passes remember how far they are: read, missing, damaged, or not to be read now."""

import json
from pathlib import Path

import pytest

from laggard_aggregator.files.kept_json import read_kept
from laggard_common.errors import ArchiveError


def number_of(content: dict[str, int]) -> int:
    return content["number"] + 0


def test_what_was_kept_is_there_and_nothing_where_there_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text(json.dumps({"number": 3}))
    assert read_kept(tmp_path / "kept", number_of, "again") == 3
    assert read_kept(tmp_path / "none", number_of, "again") is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"{}", b'{"number": "x"}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kept").write_bytes(content)
    assert read_kept(tmp_path / "kept", number_of, "all hours are rolled up again") is None
    assert f"{tmp_path / 'kept'} is damaged: all hours are rolled up again" in caplog.text


def test_a_file_that_cannot_be_read_is_not_one_that_is_missing(tmp_path: Path) -> None:
    """Before, a poll after an EIO forgot when the last one was, and left out the jobs since then."""
    with pytest.raises(ArchiveError, match=r"cannot be read: Is a directory"):
        read_kept(tmp_path, number_of, "again")
