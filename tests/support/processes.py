"""Child processes of the tests: each in a session of its own, killed with it, none outlives its test.

`started` and `run_command` start every child. The kernel kills a child when the thread that started it ends
(PR_SET_PDEATHSIG), so that none survives a test run that is killed. pytest runs below a reaper of its own
(`fork_reaper`), which becomes the parent of orphans: `left` finds those, too.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.wait import LIMIT_SECONDS

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)

_reaper = 0
"""Process id of the reaper above this process; 0 without one."""
_LEASH = str(Path(__file__).with_name("leash.py"))

Command = Sequence[object]
"""Program and arguments; `str` of each is passed on."""


@contextlib.contextmanager
def started(command: Command, **options: Any) -> "Iterator[subprocess.Popen[Any]]":
    """`command` as a child while the block lasts; then its whole session is killed.

    `options`: those of `subprocess.Popen`. The child reads nothing unless `stdin` is given.
    """
    leashed = [sys.executable, "-I", "-S", _LEASH, str(os.getpid()), *map(str, command)]
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(leashed, start_new_session=True, **options)
    try:
        yield process
    finally:
        kill_session(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def run_command(
    command: Command,
    *,
    check: bool = True,
    stdin_text: str | None = None,
    seconds: float = LIMIT_SECONDS,
    **options: Any,
) -> "subprocess.CompletedProcess[str]":
    """Runs `command` to its end; what it printed is captured, unless `stdout` or `stderr` is given.

    Fails when it has not ended after `seconds`, or with `check` when its exit code is not 0.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    if stdin_text is not None:
        options["stdin"] = subprocess.PIPE
    with started(command, text=True, **options) as process:
        out, err = process.communicate(stdin_text, timeout=seconds)
    assert not check or process.returncode == 0, f"{command}: exit code {process.returncode}\n{out}{err}"
    return subprocess.CompletedProcess(list(map(str, command)), process.returncode, out, err)


@contextlib.contextmanager
def running(command: Command, log: Path) -> "Iterator[subprocess.Popen[Any]]":
    """A daemon while the block lasts, then SIGTERM. Its output goes to `log`, shown when the block fails."""
    with log.open("ab") as output, started(command, stdout=output, stderr=output) as process:
        try:
            yield process
        except BaseException:
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")
            raise
        finally:
            end(process)


def end(process: "subprocess.Popen[Any]") -> int:
    """Ends a process with SIGTERM; its exit code. Fails when it has not ended after LIMIT_SECONDS."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.wait(LIMIT_SECONDS)


def kill_session(process: "subprocess.Popen[Any]") -> None:
    """Kills a child and every process that is in its session; waits for the child."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for one in left():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(one.pid) == process.pid:
                one.kill()


def fork_reaper() -> None:
    """Forks: this call returns in the child; the parent stays as the parent of all orphans below it.

    The parent waits for every process that it gets, as init does, and ends as the child does. Without it, the
    ended processes of a process namespace would be children of somebody who never waits for them.
    """
    global _reaper  # noqa: PLW0603 - one reaper a process
    reaper, child = os.getpid(), os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _reaper = reaper
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child, too
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    ended = status = 0
    while ended != child:
        ended, status = os.waitpid(-1, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(reaper, -code)
    os._exit(code)


def left() -> list[psutil.Process]:
    """All other processes below the reaper, or below this process without one, that have not ended."""
    below = psutil.Process(_reaper or os.getpid()).children(recursive=True)
    return [child for child in below if child.pid != os.getpid() and is_running(child.pid)]


def is_running(pid: int) -> bool:
    """Whether there is such a process and it has not ended (a zombie has)."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill_left() -> list[str]:
    """Kills all descendants that have not ended; the command line of each."""
    found = []
    for child in left():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(f"{child.pid}: {' '.join(child.cmdline()) or child.name()}")
            child.kill()
    return found


def get_json(url: str) -> Any:
    """The JSON at `url`, None while nobody answers there with 200."""
    text = get_text(url)
    return json.loads(text) if text else None


def get_text(url: str) -> str:
    """The text at `url`, empty while nobody answers there with 200."""
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return ""
