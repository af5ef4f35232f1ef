"""The child process that reads logs: `python -m laggard_aggregator.mining.worker BYTES`.

It reads one JSON object a line, `{"path", "log", "directory"}`, and answers each with `{"error": text or
null}`.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import TextIO

from laggard_aggregator.mining.darshan_library import without_pandas
from laggard_common.errors import LaggardError


def main() -> None:
    """Converts logs until standard input ends. The C library prints to descriptors 1 and 2: to nowhere."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with without_pandas():
        _serve(sys.stdin, answers)


def _serve(requests: TextIO, answers: TextIO) -> None:
    from laggard_aggregator.mining.convert import convert

    for line in requests:
        request = json.loads(line)
        error = None
        try:
            convert(Path(request["path"]), request["log"], Path(request["directory"]))
        except MemoryError:
            error = f"{request['path']}: needs more memory than a reader may have"
        except LaggardError as exc:
            error = str(exc)
        except Exception as exc:
            error = f"{request['path']}: damaged: {type(exc).__name__}: {exc}"
        answers.write(json.dumps({"error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
