"""Settings of the C library's allocator that keep a daemon's memory constant for months.

glibc gives threads arenas of their own, up to eight per core. With a thread pool every arena grows to the
peak of the work, one after another, over hours. And glibc raises the size from which memory is returned at
once each time a larger block is freed (mallopt(3)).
"""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def settle(most_kept_bytes: int | None = None) -> bool:
    """Sets one arena for all threads; called before threads start. True if the C library supports it (glibc).

    With `most_kept_bytes` larger blocks, and that much free memory at the end of the heap, are always
    returned at once: suitable where large blocks are rare, as each then costs page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = {_M_ARENA_MAX: 1}
    if most_kept_bytes is not None:
        wanted |= {_M_MMAP_THRESHOLD: most_kept_bytes, _M_TRIM_THRESHOLD: most_kept_bytes}
    return [mallopt(what, value) for what, value in wanted.items()] == [1] * len(wanted)


def set_apart() -> None:
    """Exempts existing objects from garbage collection; called once modules are imported.

    The collector scans old objects only when they have grown by a quarter. Next to a hundred thousand objects
    of modules the garbage of weeks may be less than that.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # now the remaining objects are old


def trim() -> None:
    """Returns free heap memory to the system, if the C library supports it (glibc)."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
