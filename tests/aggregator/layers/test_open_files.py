"""Positions of files that a recorded program has open already."""

import os
import time
from pathlib import Path

import pytest

from laggard_aggregator.layers.record import open_files


def test_a_position_counts_only_when_both_readings_are_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is read again and again may be at one place twice while the recorder waits for a CPU."""
    path = tmp_path / "data"
    path.write_bytes(bytes(100))
    clock = iter([0, 50_000_000, 60_000_000, 60_010_000])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(clock))
    fd = os.open(path, os.O_RDONLY)
    try:
        os.lseek(fd, 77, os.SEEK_SET)
        assert open_files._position(os.getpid(), fd) == (60_005_000, 77)
    finally:
        os.close(fd)
