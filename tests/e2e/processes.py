"""Real processes for the end-to-end tests: started on loopback, ended by pid, never outliving the test."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from laggard_aggregator.demo.children import LEASH


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, ends_seconds: float = 10.0
) -> Iterator[subprocess.Popen[bytes]]:
    """`command` while the block lasts, then SIGTERM. It speaks into `log`, shown when the block fails."""
    leash = (sys.executable, "-I", "-S", str(LEASH), str(os.getpid()))
    with log.open("ab") as said:
        process = subprocess.Popen([*leash, *command], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield process
    except BaseException:
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")
        raise
    finally:
        end(process, ends_seconds)


def end(process: subprocess.Popen[bytes], seconds: float = 10.0) -> int:
    """Ends a process with SIGTERM, or SIGKILL when it does not end in time; its exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def until(what: str, condition: Callable[[], object], seconds: float) -> Any:
    """The first true answer of `condition`, asked ten times a second. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for: {what}"
        time.sleep(0.1)


def get_json(url: str) -> Any:
    """The JSON at `url`, None while nobody answers there with 200."""
    said = get_text(url)
    return json.loads(said) if said else None


def get_text(url: str) -> str:
    """What `url` answers with 200, empty while nobody does."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return ""
