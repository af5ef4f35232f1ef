"""Power is lost at some moments of a short run: every start succeeds, nothing acknowledged is lost."""

import os
import random
import shutil
from pathlib import Path

import pytest

from bench.power_loss.__main__ import record, try_points
from bench.power_loss.disk import Disk, Operation

pytestmark = pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="needs a C compiler")


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    log = record(tmp_path, 9)
    tried, wrong = try_points(tmp_path, log, 24, 1)
    assert wrong == []
    assert sum(tried.values()) == 24


def test_a_disk_keeps_what_was_synced(tmp_path: Path) -> None:
    disk = Disk(Path("/d"))
    for number, done in enumerate(
        (
            Operation("M", path="/d/a"),
            Operation("O", 1, path="/d/a/x.tmp"),
            Operation("W", 1, 0, b"hello"),
            Operation("S", 1),
            Operation("W", 1, 5, b" world"),
            Operation("R", path="/d/a/x.tmp", other="/d/a/x"),
            Operation("O", 2, path="/d/a"),
            Operation("S", 2),
            Operation("O", 3, path="/d"),
            Operation("S", 3),
            Operation("O", 4, 1, path="/d/a/x"),
        )
    ):
        disk.apply(done)
        disk.write(tmp_path / f"lost{number}", "lost", random.Random(1))
        disk.write(tmp_path / f"kept{number}", "kept", random.Random(1))
    assert not (tmp_path / "lost8" / "a").exists()  # the folder's own name was not synced
    assert (tmp_path / "lost10" / "a" / "x").read_bytes() == b"hello"
    assert (tmp_path / "kept4" / "a" / "x.tmp").read_bytes() == b"hello world"
    assert (tmp_path / "kept9" / "a" / "x").read_bytes() == b"hello world"
    assert (tmp_path / "kept10" / "a" / "x").read_bytes() == b""
