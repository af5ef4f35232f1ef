"""Runs a command that the kernel kills when its parent ends: `python leash.py PARENT COMMAND...`.

A separate program, as `preexec_fn` is unsafe in a process with threads. It needs the standard library alone
and becomes the command by exec, so that the process id stays.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Becomes the command. Exit code 1 when the parent (a process id) has ended already."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as exc:
        sys.exit(f"{command[0]}: {exc.strerror}")


if __name__ == "__main__":
    main()
