"""How the C library's allocator keeps what is freed, so that a daemon's memory stays as it is for months.

glibc gives threads arenas of their own, up to eight a core. Work that goes to whichever thread of a pool is
free makes every arena as large as that work needs at its worst, one after the other, for hours. And it raises
the size from which memory is given back at once each time that a larger block is freed (mallopt(3)).
"""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def settle(most_kept_bytes: int | None = None) -> bool:
    """One arena for all threads; to be called before there are any. Whether the C library can do so (glibc).

    With `most_kept_bytes` larger blocks, and so much free at the end of the heap, go back to the system at
    once and always: for who seldom needs large ones, as each then costs page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = {_M_ARENA_MAX: 1}
    if most_kept_bytes is not None:
        wanted |= {_M_MMAP_THRESHOLD: most_kept_bytes, _M_TRIM_THRESHOLD: most_kept_bytes}
    return [mallopt(what, value) for what, value in wanted.items()] == [1] * len(wanted)


def set_apart() -> None:
    """Has the garbage collector look no more at what there is now: to be called once modules are imported.

    It looks at what lives long only when that has grown by a quarter. Beside a hundred thousand objects of
    modules the garbage of weeks may be less than that.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # only now it takes for long-lived what is left


def give_back() -> None:
    """Returns to the system what was freed within the heap; where the C library can do so (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
