"""Runs a command that ends when its parent does, however that may be: `python leash.py PARENT COMMAND...`.

A file of its own that needs nothing but the standard library: it becomes the command, by exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept over exec, see prctl(2)


def main() -> None:
    """Becomes the command, or ends with 1 when the parent (a process id) is gone already."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
