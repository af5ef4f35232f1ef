# ruff: noqa: E501 - examples are whole lines of their formats
"""Readers of `laggard layers`: any bytes as a file of each format, and the analysis of what they hold."""

import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from laggard_aggregator.layers.columns import LayerRecording
from laggard_aggregator.layers.gluster import volume
from laggard_aggregator.layers.readers import (
    blkparse,
    dftracer,
    dxt,
    extents,
    kernel_trace,
    neutral,
    printed_events,
    stamped_csv,
    strace,
)
from laggard_aggregator.layers.readers.plausible import keep_plausible
from laggard_aggregator.layers.stack import build
from laggard_common.errors import InputError

Reader = Callable[[Path, LayerRecording], None]
SAID = (InputError, ValueError, ArithmeticError, OSError, pa.ArrowException)
"""Errors of a reader that `open_recording` turns into a message."""


def layers_file(read: Reader, data: bytes) -> None:
    """A file of one format, whatever its content says, with its analysis."""
    recording = LayerRecording()
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".77") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(*SAID):
            read(Path(file.name), recording)
    keep_plausible(recording)
    if any(len(layer.requests) for layer in recording.layers):
        with contextlib.suppress(InputError):
            build(recording)


def layers_gluster(data: bytes) -> None:
    """Statedumps, profiles and copies of /proc/diskstats of a volume."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(InputError):
            volume.read([Path(file.name)])


def layers_maps(data: bytes) -> None:
    """A recording's description and maps of files."""
    for read in (extents.read_extents, extents.read_description):
        layers_file(read, data)


_STRACE = (
    b'7  1700000000.000000 openat(AT_FDCWD, "/d/a", O_RDWR|O_APPEND) = 3</d/a> <0.000010>\n'
    b"7  1700000000.100000 read(3</d/a>,  <unfinished ...>\n"
    b"8  1700000000.150000 clone(flags=CLONE_FILES) = 9 <0.000010>\n"
    b'7  1700000000.200000 <... read resumed>"a", 9) = 9 <0.100000>\n'
    b"7  1700000000.300000 pwritev2(3</d/a>, [{iov_len=9}], 1, -1, 0) = 9 <0.000010>\n"
    b"7  1700000000.400000 copy_file_range(3</d/a>, [0], 4</d/b>, NULL, 99, 0) = 9 <0.000010>\n",
)
_DXT = (
    b"# darshan log version: 3.41\n# start_time: 1700000000\n# DXT, file_id: 7, file_name: /d/a\n"
    b"# DXT, rank: 0, hostname: n\n X_POSIX 0 write 0 0 1048576 1.0000 1.0080\n X_MPIIO 0 read 0 N/A 9 2.0 2.1\n",
)
_KERNEL = (
    b"# tracer: nop\n app-11 (     10) [001] .....     5.000060: sys_pread64(fd: a, buf: 0x55, count: 0x1000, pos: 0x0)\n"
    b" app-11 (     10) [001] .....     5.000090: sys_pread64 -> 0x1000\n",
    b"app 10/11 [001] 5.000010000: syscalls:sys_enter_read: fd: 0x3, buf: 0x55, count: 0x1000\n"
    b"app 10/11 [001] 5.000030000: block:block_rq_issue: 7,0 RS 4096 () 16 + 8 0x2,0,4 [app]\n"
    b"app 0/0 [001] 5.000040000: block:block_rq_complete: 7,0 RS () 16 + 4 0x2,0,4 [0]\n"
    b"app 10/11 [001] 5.000060000: syscalls:sys_exit_read: 0x1000\n",
    b"cpus=4\n fio-4 [003] 1000.000000: block_rq_issue:       8,0 R 65536 () 0 + 128 [fio]\n"
    b" fio-4 [003] 1000.200000: block_rq_complete:    8,0 R () 0 + 128 [0]\n"
    b" fio-4 [003] 1000.300000: iomap_dio_rw_begin: dev 7:0 ino 0xd size 0x1 offset 0x0 length 0x1 flags DIRECT\n"
    b" fio-4 [003] 1000.400000: ext4_da_write_end: dev 7,0 ino 13 pos 0 len 9 copied 9\n",
)
_BLKPARSE = (
    b"  8,0    3        1     0.000000000   697  Q   R 223490 + 8 [k]\n"
    b"  8,0    3        3     0.000010000   697  D   R 223490 + 8 [k]\n"
    b"  8,0    3        4     0.000510000     0  C   R 223490 + 8 [0]\n",
)
_DFTRACER = (
    b'{"id":3,"name":"pread","cat":"POSIX","pid":1,"tid":1,"ts":1010,"dur":50,"ph":"X","args":{"ret":-1,"count":16,"offset":4}}\n'
    b'{"id":4,"name":"fread","cat":"STDIO","pid":1,"tid":1,"ts":1010,"dur":50,"ph":"X","args":{"ret":1,"size":16,"count":4}}\n',
)
_NEUTRAL = (
    b"layer,event,request,time_us,file,offset,bytes,operation\n"
    b"application,ADMIT,1,1.5,a,0,100,READ\napplication,CALLBACK,1,2,a,0,-5,READ\n",
)
_STAMPED = (b"thread,op,file,offset,bytes,submit_ns,done_ns,fd,ret\n1,read,a,0,100,1000,2000,3,100\n",)
_PRINTED = (
    b"Time: 2650212.242744   EVENT: AIO_ISSUE   OP: READ   FD: 15   OFFSET: 712114176   NBYTES: 65536\n",
)
_MAPS = (
    b"Filesystem type is: ef53\nFile size of /d/a is 8192 (2 blocks of 4096 bytes)\n ext: logical_offset: "
    b"physical_offset: length: expected: flags:\n   0:        0..       1:         5..         6:      2: last\n",
    b'{"descriptors": [[1, 3, "/d/a", 1, 2, 0, [[1, 0]]]], "lies_on": {"7,1": "7,0"}, "inodes": {"/d/a": [1, 2]}}',
)
_GLUSTER = (
    b"Brick: h:/b\nCumulative Stats:\n %-latency Avg-latency Min Max No. of calls Fop\n 9.1 8.0 us 1.0 us 9.0 us 7 READ\n",
    b"DUMP-START-TIME: 2026-01-01 00:00:00.0\n[protocol/client.v-client-0.latency]\nread=1.0,2,3.0\n",
)

LAYERS: dict[str, tuple[Callable[[bytes], object], tuple[bytes, ...]]] = {
    "layers of strace": (partial(layers_file, strace.read), _STRACE),
    "layers of DXT": (partial(layers_file, dxt.read), _DXT),
    "layers of the kernel": (partial(layers_file, kernel_trace.read), _KERNEL),
    "layers of blkparse": (partial(layers_file, blkparse.read), _BLKPARSE),
    "layers of DFTracer": (partial(layers_file, dftracer.read), _DFTRACER),
    "layers of events": (partial(layers_file, neutral.read), _NEUTRAL),
    "layers of stamps": (partial(layers_file, stamped_csv.read), _STAMPED),
    "layers as printed": (partial(layers_file, printed_events.read), _PRINTED),
    "maps of layers": (layers_maps, _MAPS),
    "gluster's layers": (layers_gluster, _GLUSTER),
}
"""What is run, and good examples."""
