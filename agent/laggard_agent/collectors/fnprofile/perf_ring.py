"""The ring buffer filled by the kernel and drained by this process: perf_event_open(2), "MMAP layout"."""

import mmap
import os

_HEAD, _TAIL = 128, 129  # offsets of data_head and data_tail, in words of 8 bytes


class Ring:
    """Ring buffer of the event `fd`, which it owns. Raises OSError when it cannot be mapped."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self._size = size
        try:
            self._memory = mmap.mmap(fd, mmap.PAGESIZE + size)
        except (OSError, ValueError) as exc:
            os.close(fd)
            raise exc if isinstance(exc, OSError) else OSError(exc) from exc

    def drain(self) -> bytes:
        """Everything that is new, whole records in order of writing; its place is free for others."""
        control = memoryview(self._memory)[: mmap.PAGESIZE].cast("Q")
        try:
            head, tail = control[_HEAD], control[_TAIL]
            data = unwrapped(self._memory, mmap.PAGESIZE, self._size, head, tail)
            control[_TAIL] = head
        finally:
            control.release()
        return data

    def close(self) -> None:
        """Ends the sampling of this CPU."""
        self._memory.close()
        os.close(self.fd)


def unwrapped(memory: "mmap.mmap | bytes", start: int, size: int, head: int, tail: int) -> bytes:
    """The bytes between `tail` and `head`, which only grow, in a ring of `size` bytes at `start`."""
    length = head - tail
    if not 0 <= length <= size:
        return b""
    begin = start + tail % size
    first = min(length, start + size - begin)
    return memory[begin : begin + first] + memory[start : start + length - first]
