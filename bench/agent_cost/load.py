"""A light load that changes the counters of block devices: `python -m bench.agent_cost.load DEVICE...`.

Twice a second each device gets one direct read and one direct write of 4 KiB, spread over the half second, so
every interval of one second, wherever it begins, sees every device change. What a device held is lost.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Sequence

BLOCK_BYTES = 4096
ROUND_SECONDS = 0.5
PIECES = 16  # pauses in a round


def touch(descriptors: Sequence[int], block: mmap.mmap, offset: int) -> None:
    """One read and one write on every device."""
    for fd in descriptors:
        os.preadv(fd, [block], offset)
        os.pwritev(fd, [block], offset)


def main() -> None:
    """Goes on until it is ended."""
    block = mmap.mmap(-1, BLOCK_BYTES)  # direct I/O needs aligned memory
    descriptors = [os.open(path, os.O_RDWR | os.O_DIRECT) for path in sys.argv[1:]]
    due = time.monotonic()
    turn = 0
    while True:
        for piece in range(PIECES):
            touch(descriptors[piece::PIECES], block, turn % 64 * BLOCK_BYTES)
            due += ROUND_SECONDS / PIECES
            time.sleep(max(0.0, due - time.monotonic()))
        turn += 1


if __name__ == "__main__":
    main()
