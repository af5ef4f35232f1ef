"""The check that no test leaves a process, run on tests that do."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.processes import is_running, run_command
from tests.support.wait import wait_until

PROJECT = Path(__file__).parents[2]

CHILD = """
import subprocess, sys
def test_leaks(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open({pid!r}, "w").write(str(child.pid))
"""
ORPHAN = """
import subprocess, sys
CODE = '''
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open({pid!r}, "w").write(str(child.pid))
'''
def test_leaks():
    subprocess.run([sys.executable, "-c", CODE], check=True)
"""
KILLED_BY_ITSELF = """
import os, signal, sys
from tests.support.processes import started
def test_is_killed():
    with started([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        open({pid!r}, "w").write(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)
"""
TIDY = """
import sys
from tests.support.processes import started
CODE = '''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({pid!r}, "w").write(str(child.pid))
print("ready", flush=True)
time.sleep(600)
'''
def test_leaves_nothing():
    with started([sys.executable, "-c", CODE], stdout=-1) as parent:
        assert parent.stdout.readline() == b"ready\\n"
"""


def outcome(folder: Path, text: str) -> tuple[int, str, int]:
    """Exit code and output of pytest on a module with `text`, and the process that its test started."""
    pid = folder / "pid"
    (folder / "test_it.py").write_text(text.format(pid=str(pid)))
    options = ("-p", "tests.support.no_process_left", "-p", "no:cacheprovider", "-c", os.devnull)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "LAGGARD_TEST_PATIENCE": "0.05"}
    done = run_command(
        [sys.executable, "-m", "pytest", *options, "test_it.py"], cwd=folder, env=environment, check=False
    )
    return done.returncode, done.stdout, int(pid.read_text())


@pytest.mark.parametrize("text", [CHILD, ORPHAN], ids=["child", "orphan"])
def test_a_process_left_fails_the_run_and_is_killed(text: str, tmp_path: Path) -> None:
    code, output, pid = outcome(tmp_path, text)
    assert (code, is_running(pid)) == (1, False)
    assert f"processes left: ['{pid}: " in output
    assert "1 passed, 1 error" in output


def test_a_child_ends_with_pytest_when_that_is_killed(tmp_path: Path) -> None:
    code, _, pid = outcome(tmp_path, KILLED_BY_ITSELF)
    assert code == -9
    wait_until(lambda: not is_running(pid))


def test_the_children_of_a_child_are_killed_with_it(tmp_path: Path) -> None:
    code, output, pid = outcome(tmp_path, TIDY)
    assert (code, is_running(pid)) == (0, False), output
