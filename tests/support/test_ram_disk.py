"""Where temporary files of the tests lie."""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.support import ram_disk

WANTED = {ram_disk.WANTED: "1"}


@pytest.mark.parametrize("environment", [{}, {ram_disk.WANTED: "0"}, WANTED | {"TMPDIR": "/var/tmp"}])
def test_it_is_taken_when_it_is_wanted_and_no_other_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(ram_disk, "is_fit", lambda _: True)
    before = environment.copy()
    ram_disk.use_ram_disk(environment, tmp_path)
    assert environment == before


def test_temporary_files_lie_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    monkeypatch.setattr(ram_disk, "is_fit", lambda _: True)
    monkeypatch.setattr(os, "environ", dict(WANTED))
    ram_disk.use_ram_disk(os.environ, tmp_path)
    assert tempfile.gettempdir() == str(tmp_path)


@pytest.mark.parametrize(
    ("flags", "free", "memory", "is_fit"),
    [
        (0, ram_disk.NEEDED_BYTES, ram_disk.AVAILABLE_BYTES, True),
        (os.ST_NOEXEC, ram_disk.NEEDED_BYTES, ram_disk.AVAILABLE_BYTES, False),
        (0, 64 * 2**20, ram_disk.AVAILABLE_BYTES, False),
        (0, ram_disk.NEEDED_BYTES, 2**30, False),
    ],
    ids=["fit", "noexec", "small, as a container's", "little memory"],
)
def test_a_folder_is_fit_with_room_and_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, free: int, memory: int, is_fit: bool
) -> None:
    disk = SimpleNamespace(f_flag=flags, f_bavail=free // 4096, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=memory))
    assert ram_disk.is_fit(tmp_path) == is_fit


def test_a_machine_without_one(tmp_path: Path) -> None:
    environment = dict(WANTED)
    ram_disk.use_ram_disk(environment, tmp_path / "none")
    assert environment == WANTED
