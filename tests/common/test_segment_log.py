import os
import resource
import signal
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_common.errors import SpoolError
from laggard_common.segment_log import (
    HEADER,
    MAGIC,
    MAX_RECORD_BYTES,
    SegmentWriter,
    files,
    recover,
    scan,
)

RECORDS = [(1, b"first"), (2, b""), (255, bytes(range(256)))]


def written(path: Path, records: list[tuple[int, bytes]]) -> Path:
    with closing(SegmentWriter(path)) as writer:
        for type_, payload in records:
            writer.append(type_, payload)
    return path


def read(path: Path) -> list[tuple[int, bytes]]:
    return [(record.type, record.payload) for record in scan(path)]


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "s", RECORDS)
    written(path, [(9, b"later")])
    assert read(path) == [*RECORDS, (9, b"later")]
    assert path.read_bytes()[:8] == MAGIC
    assert path.stat().st_mode & 0o777 == 0o640


def test_records_in_pieces_are_appended_together_or_not_at_all(tmp_path: Path) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    written(whole, RECORDS)
    with closing(SegmentWriter(pieces)) as writer:
        with pytest.raises(ValueError, match="record of type 0"):
            writer.append_all([(1, (b"first",)), (0, (b"",))])
        writer.append_all([(1, (b"fi", b"rst")), (2, ())])
        writer.append_all([(255, (bytes(range(200)), b"", bytes(range(200, 256))))])
    assert pieces.read_bytes() == whole.read_bytes()


def test_records_name_their_place(tmp_path: Path) -> None:
    records = list(scan(written(tmp_path / "s", RECORDS)))
    assert records[0].offset == len(MAGIC)
    assert [record.end for record in records[:-1]] == [record.offset for record in records[1:]]
    assert records[-1].end == (tmp_path / "s").stat().st_size


def test_every_torn_tail_is_cut_off_and_nothing_else(tmp_path: Path) -> None:
    whole = written(tmp_path / "s", RECORDS).read_bytes()
    ends = [len(MAGIC), *(record.end for record in scan(tmp_path / "s"))]
    for length in range(len(whole) + 1):
        path = tmp_path / "torn"
        path.write_bytes(whole[:length])
        kept = max((end for end in ends if end <= length), default=0)
        assert recover(path) == length - kept
        assert path.read_bytes() == whole[:kept]
        assert read(path) == RECORDS[: max(0, ends.index(kept) if kept else 0)]
        assert read(written(path, [(7, b"new")]))[-1] == (7, b"new")


def test_no_damaged_byte_is_believed(tmp_path: Path) -> None:
    whole = written(tmp_path / "s", RECORDS).read_bytes()
    path = tmp_path / "damaged"
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x41,)) + whole[at + 1 :])
        records = read(path)
        assert all(record in RECORDS for record in records)
        assert len(records) < len(RECORDS) or at < len(MAGIC)


def test_a_flipped_bit_costs_one_record_at_most(tmp_path: Path) -> None:
    """In the length none, as the checksum says how long the record was; in the magic neither."""
    records = [(1 + at % 5, bytes([at]) * (5 * at)) for at in range(9)]
    whole = written(tmp_path / "s", records).read_bytes()
    lengths = {at for record in scan(tmp_path / "s") for at in range(record.offset, record.offset + 4)}
    path = tmp_path / "damaged"
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1 << at * 5 % 8,)) + whole[at + 1 :])
        found = read(path)
        assert len(found) == len(records) - (at >= len(MAGIC) and at not in lengths)
        rest = iter(records)
        assert all(any(each == other for other in rest) for each in found)


def test_a_gap_shows_in_the_offsets(tmp_path: Path) -> None:
    path = written(tmp_path / "s", RECORDS)
    second = list(scan(path))[1]
    data = bytearray(path.read_bytes())
    data[second.offset + 5] ^= 1
    path.write_bytes(data)
    first, third = scan(path)
    assert (first.end, third.offset) == (second.offset, second.end)


def test_records_inside_a_payload_are_not_found_after_damage(tmp_path: Path) -> None:
    """A client chose the payload: where the length of its record is lost, so is the rest."""
    inner = written(tmp_path / "inner", [(2, b"forged")]).read_bytes()[len(MAGIC) :]
    path = written(tmp_path / "s", [(1, b"first"), (2, bytes(3000) + inner * 9), (3, b"last")])
    at = list(scan(path))[1].offset
    data = bytearray(path.read_bytes())
    data[at : at + 4] = b"\x99\x99\x00\x00"
    path.write_bytes(data)
    assert read(path) == [(1, b"first")]


def test_zeros_after_a_power_loss_are_not_records(tmp_path: Path) -> None:
    path = written(tmp_path / "s", RECORDS)
    with path.open("ab") as file:
        file.write(bytes(4096))
    assert read(path) == RECORDS
    assert recover(path) == 4096


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "arbitrary"
    path.write_bytes(MAGIC + data)
    list(scan(path))
    recover(path)
    assert recover(path) == 0


def test_a_huge_length_reserves_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(MAGIC + HEADER.pack(MAX_RECORD_BYTES + 1, 0, 1) + b"x")
    assert read(path) == []


def test_records_are_bounded(tmp_path: Path) -> None:
    with closing(SegmentWriter(tmp_path / "s")) as writer:
        with pytest.raises(ValueError, match="record of type 0"):
            writer.append(0, b"")
        with pytest.raises(ValueError, match="bytes"):
            writer.append(1, bytes(MAX_RECORD_BYTES + 1))


def test_a_full_disk_leaves_the_segment_as_it_was(tmp_path: Path) -> None:
    """A file size limit makes write(2) stop half-way and then fail, as a full disk does."""
    path = written(tmp_path / "s", RECORDS)
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, before[1]))
    try:
        with closing(SegmentWriter(path)) as writer:
            with pytest.raises(SpoolError) as caught:
                writer.append(1, bytes(100))
            assert caught.value.path == str(path)
            writer.append(1, b"fits")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert read(path) == [*RECORDS, (1, b"fits")]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="Is a directory"):
        SegmentWriter(tmp_path)
    with pytest.raises(SpoolError, match="No such file"):
        list(scan(tmp_path / "missing"))
    with pytest.raises(SpoolError, match="No such file"):
        recover(tmp_path / "missing")


def test_a_foreign_file_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"something else")
    assert read(path) == []
    assert recover(path) == 14
    assert path.stat().st_size == 0


def test_sync_and_close(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "s")
    writer.append(1, b"x")
    writer.sync()
    writer.close()
    writer.close()
    open_files = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
    assert str(writer.path) not in open_files


def test_a_folder_that_may_not_be_read_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1.segment").touch()
    (tmp_path / ".2.segment").touch()
    assert [path.name for path in files(tmp_path, ".segment")] == [".2.segment", "1.segment"]
    assert files(tmp_path / "missing", ".segment") == []

    def refuse(path: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        files(tmp_path, ".segment")
