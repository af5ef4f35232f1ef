"""Runs a command that the kernel ends together with its parent: `python leash.py PARENT COMMAND...`.

Uses the standard library only and replaces itself with the command by exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept over exec, see prctl(2)


def main() -> None:
    """Replaces this process with the command; returns 1 when the parent process has already ended."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
