from pathlib import Path

import pytest

from laggard_common.daemon.file_lock import take_lock
from laggard_common.errors import ServiceError


def test_only_one_has_the_lock_until_it_is_given_up(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    with take_lock(directory, "is taken"), pytest.raises(ServiceError, match="b: is taken"):
        take_lock(directory, "is taken")
    take_lock(directory, "is taken").close()


def test_what_is_no_directory_is_the_systems_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        take_lock(tmp_path / "file", "is taken")
