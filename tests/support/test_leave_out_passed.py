"""The option `--leave-out-passed`, on tests of which one skips and one fails without a program."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_command

PROJECT = Path(__file__).parents[2]
TESTS = """
import os
import pytest

def test_passes():
    pass

@pytest.mark.root
def test_needs_the_program():
    if "PROGRAM" not in os.environ:
        pytest.skip("needs the program")

@pytest.fixture
def ends():
    yield
    assert "PROGRAM" in os.environ

def test_fails_at_its_end(ends):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = root\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def outcome(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    """Exit code of pytest, and its last line without the time."""
    done = run_command(
        [sys.executable, "-m", "pytest", "-p", "tests.support.leave_out_passed", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
        check=False,
    )
    return done.returncode, done.stdout.splitlines()[-1].strip("= ").partition(" in ")[0]


def test_what_passed_is_left_out_until_asked_again(folder: Path) -> None:
    assert outcome(folder) == (1, "2 passed, 1 skipped, 1 error")
    assert outcome(folder, "--leave-out-passed", PROGRAM="1") == (0, "2 passed, 1 deselected")
    assert outcome(folder, "--leave-out-passed") == (0, "3 deselected")
    assert outcome(folder, PROGRAM="1") == (0, "3 passed")


def test_each_choice_of_files_is_remembered_apart(folder: Path) -> None:
    (folder / "test_more.py").write_text("def test_more():\n    pass\n")
    assert outcome(folder, "test_it.py", PROGRAM="1") == (0, "3 passed")
    assert outcome(folder, "test_more.py", "--leave-out-passed") == (0, "1 passed")
    assert outcome(folder, "test_it.py", "--leave-out-passed") == (0, "3 deselected")


def test_each_choice_of_marks_is_remembered_apart(folder: Path) -> None:
    assert outcome(folder, "-m", "root", PROGRAM="1") == (0, "1 passed, 2 deselected")
    assert outcome(folder, "-m", "not root", "--leave-out-passed", PROGRAM="1") == (
        0,
        "2 passed, 1 deselected",
    )
    assert outcome(folder, "-m", "root", "--leave-out-passed", PROGRAM="1") == (0, "3 deselected")


def test_a_choice_of_many_files_is_remembered(folder: Path) -> None:
    names = [f"test_{'long_' * 8}{at}.py" for at in range(8)]
    for name in names:
        (folder / name).write_text("def test_passes():\n    pass\n")
    assert outcome(folder, *names) == (0, "8 passed")
    assert outcome(folder, *names, "--leave-out-passed") == (0, "8 deselected")
