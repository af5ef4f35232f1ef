"""A flipped bit in every third byte of a journal, snapshot or spool segment: fewer records, no other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from laggard_aggregator.log import snapshots
from laggard_aggregator.log.journal import Journal
from laggard_common import segment_log
from laggard_common.errors import StateError
from tests.aggregator.log.test_fuzz import ENTRIES, written

EVERY = 3
SECTIONS = [
    {"site": "é", "lsn": 2**40},
    {"nodes": [("oss-1", 1.5, b"x" * 40)] * 9},
    {"group": "luns", "n": 7},
]


def flipped(path: Path) -> Iterator[None]:
    """`path` with one flipped bit after the other; whole again at the end."""
    whole = path.read_bytes()
    for at in range(0, len(whole), EVERY):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        yield
    path.write_bytes(whole)


def is_part(found: list[Any], of: list[Any]) -> bool:
    """Whether `found` is `of` with some left out."""
    rest = iter(of)
    return all(any(each == other for other in rest) for each in found)


def test_a_journal_gives_fewer_entries_and_no_other(tmp_path: Path) -> None:
    path = written(tmp_path)
    lost = 0
    for _ in flipped(path):
        journal = Journal(tmp_path, 10**6)
        found = list(journal.entries(0))
        assert is_part(found, ENTRIES)
        assert len(found) >= len(ENTRIES) - 1
        assert len(found) == len(ENTRIES) or journal.damaged or found == ENTRIES[:-1]
        lost += len(found) < len(ENTRIES)
    assert lost > 50
    assert list(Journal(tmp_path, 10**6).entries(0)) == ENTRIES


def test_a_snapshot_is_refused(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 1, iter(SECTIONS))
    snapshots.publish(tmp_path, 1)
    expected = list(snapshots.read(tmp_path, 1))
    (path,) = tmp_path.glob("*.snapshot")
    refused = 0
    for _ in flipped(path):
        try:  # a length can be told from the checksum
            assert list(snapshots.read(tmp_path, 1)) == expected
        except StateError:
            refused += 1
    assert refused > 30
    assert list(snapshots.read(tmp_path, 1)) == expected


def test_a_spools_segment_gives_fewer_records_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    writer = segment_log.SegmentWriter(path)
    for number in range(20):
        writer.append(1 + number % 3, bytes([number]) * number)
    writer.close()
    whole = [(each.type, each.payload) for each in segment_log.scan(path)]
    for _ in flipped(path):
        found = [(each.type, each.payload) for each in segment_log.scan(path)]
        assert is_part(found, whole)
        assert len(found) >= len(whole) - 1
