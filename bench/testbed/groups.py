"""Control groups that a testbed makes for its processes, removed at the end."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.testbed.luns import CannotRunError, TestbedError

EMPTY_SECONDS = 60.0


@contextmanager
def control_groups(root: Path, names: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Yield a control group below `root`, the mount of a hierarchy, for each name.

    Raises CannotRunError where there can be none, TestbedError when processes are still in one EMPTY_SECONDS
    after the end.
    """
    with ExitStack() as stack:
        groups = {}
        for name in names:
            group = root / f"laggard-{os.getpid()}-{name}"
            try:
                group.mkdir()
            except OSError as exc:
                raise CannotRunError(f"no control groups can be made: {exc}") from exc
            stack.callback(_remove, group)
            groups[name] = group
        yield groups


def within(groups: Sequence[Path], command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` in control groups of several hierarchies."""
    join = 'while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'
    return ["sh", "-c", join, "sh", *map(str, groups), "--", *command]


def _remove(group: Path) -> None:
    """Remove a control group once its processes are gone."""
    deadline = time.monotonic() + EMPTY_SECONDS
    while True:
        try:
            group.rmdir()
        except OSError as exc:
            if exc.errno != errno.EBUSY:
                raise
            if time.monotonic() > deadline:
                raise TestbedError(f"{group} stays behind: there are still processes in it") from exc
            time.sleep(0.05)
        else:
            return
