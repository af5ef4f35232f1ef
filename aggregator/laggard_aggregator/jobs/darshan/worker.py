"""The child process that reads logs: `python -m laggard_aggregator.jobs.darshan.worker BYTES`.

It reads one JSON object a line, `{"path", "log", "directory"}`, and answers each with `{"error", "of"}`: the
problem as one line or null, and its kind, `log`, `run` or `installation`.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from laggard_aggregator.jobs.darshan.darshan_library import without_pandas
from laggard_common.errors import InputError, ServiceError

_MAX_TABLE_BYTES: Final = 16 << 30
"""Limit of one table of one log: a log that inflates must not fill the disk."""
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Converts logs until standard input ends. The C library prints to descriptors 1 and 2: to nowhere."""
    _end_with_parent()
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_TABLE_BYTES, _MAX_TABLE_BYTES))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with without_pandas():
        _serve(sys.stdin, answers)


def _end_with_parent() -> None:
    """A reader whose parent was killed must write no more into the store that the next run uses."""
    with suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve(requests: TextIO, answers: TextIO) -> None:
    for line in requests:
        request = json.loads(line)
        fault = problem(Path(request["path"]), request["log"], Path(request["directory"]))
        answers.write(json.dumps({"error": fault[1], "of": fault[0]} if fault else {"error": None}) + "\n")
        answers.flush()


def problem(path: Path, log: int, directory: Path) -> tuple[str, str] | None:
    """Converts a log; returns the kind of its problem and the problem as one line, None when there was none.

    `log`: of the log itself, which the next run would find again. `run`: of this run, such as a full disk.
    `installation`: of the packages, for every log.
    """
    try:
        from laggard_aggregator.jobs.darshan.convert import convert

        convert(path, log, directory)
    except ServiceError as exc:
        return "installation", str(exc)
    except ImportError as exc:
        return "installation", f"the reader of logs cannot be used: {' '.join(str(exc).split())[:200]}"
    except InputError as exc:
        return "run" if isinstance(exc.__cause__, OSError) else "log", str(exc)
    except (MemoryError, OSError) as exc:
        return _of_run(path, exc)
    except Exception as exc:
        return "log", f"{path}: damaged: {type(exc).__name__}: {' '.join(str(exc).split())[:200]}"
    return None


def _of_run(path: Path, exc: MemoryError | OSError) -> tuple[str, str]:
    if isinstance(exc, MemoryError):
        return "run", f"{path}: needs more memory than a reader may have"
    if exc.errno == errno.EFBIG:
        return "log", f"{path}: its tables would be larger than {_MAX_TABLE_BYTES >> 30} GiB"
    return "run", f"{path}: not converted: {exc.strerror or exc}"


if __name__ == "__main__":
    main()
