"""What a process of its own says of its heap."""

import platform
import sys

import pytest

from tests.support.processes import run_command

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")

_ARENAS = """
import ctypes, threading
from laggard_common.daemon import memory
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
{settle}
everyone = threading.Barrier(4)
def allocate():
    libc.malloc(ctypes.c_size_t(50_000))
    everyone.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info(0, ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w")))
libc.fflush(None)
"""

_LARGE = """
import ctypes
from laggard_common.daemon import memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
{settle}
def mapped():
    block = libc.malloc(ctypes.c_size_t(3_000_000))
    heap = next(line.split()[0].split("-") for line in open("/proc/self/maps") if "[heap]" in line)
    inside = int(heap[0], 16) <= block < int(heap[1], 16)
    libc.free(ctypes.c_void_p(block))
    return not inside
mapped()
print(mapped())
"""


def said(program: str, settle: str) -> str:
    command = [sys.executable, "-c", program.format(settle=settle)]
    return run_command(command).stdout


def test_all_threads_share_one_arena() -> None:
    assert said(_ARENAS, "").count("<heap nr=") > 1
    assert said(_ARENAS, "assert memory.settle()").count("<heap nr=") == 1


def test_large_blocks_go_back_to_the_system_also_after_the_first() -> None:
    assert said(_LARGE, "").strip() == "False"
    assert said(_LARGE, "assert memory.settle(128 * 1024)").strip() == "True"


_HOLES = """
import ctypes
from pathlib import Path
from laggard_common.daemon import memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
blocks = [libc.malloc(ctypes.c_size_t(20_000)) for _ in range(2_000)]
for block in blocks:
    ctypes.memset(block, 1, 20_000)
for block in blocks[:-1]:  # the last one keeps the end of the heap where it is
    libc.free(ctypes.c_void_p(block))
before = resident()
{settle}
print(before - resident())
"""


def test_what_is_free_within_the_heap_is_given_back() -> None:
    assert int(said(_HOLES, "")) < 1_000_000
    assert int(said(_HOLES, "memory.trim()")) > 30_000_000


_GARBAGE = """
import gc
from laggard_common.daemon import memory
modules = [[] for _ in range(1_000_000)]
gc.collect()
{settle}
before = gc.get_stats()[2]["collections"]
work = [[] for _ in range(200_000)]
print(gc.get_stats()[2]["collections"] - before)
"""


def test_garbage_is_looked_for_though_there_are_many_modules() -> None:
    assert int(said(_GARBAGE, "")) == 0
    assert int(said(_GARBAGE, "memory.set_apart()")) > 0
