"""Files of every collector, spoilt in every way while all run: no crash, one clear state, the others go on.

That its parser takes a file cut off at every byte is in each collector's own tests; of I/O traces, which no
collector reads, all of it is in `tests/agent/iotrace`.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laggard_agent.collectors import registry
from laggard_agent.collectors.gluster.collector import GlusterSettings
from laggard_agent.collectors.interface import Collector, Roots
from laggard_agent.collectors.lustre.collector import LustreSettings
from laggard_agent.collectors.lustre.table_specs import SLOWER
from laggard_agent.collectors.lwfs.collector import LwfsSettings
from laggard_agent.collectors.registry import make_collector
from laggard_agent.sampling.sampler import Collected, collect
from laggard_common.wire.codec import RAW, Encoder
from tests.agent.collectors.diskstats.test_block_devices import SYSFS
from tests.agent.tools.test_support_dump import PROC
from tests.support.builders.gluster import BRICK, Folder
from tests.support.builders.gluster import CLIENT as MOUNT
from tests.support.builders.infiniband import Node
from tests.support.builders.lustre import FIXTURES as LUSTRE
from tests.support.builders.lwfs import FIXTURES as LWFS
from tests.support.builders.slurm_cgroups import FIXTURES as CGROUPS
from tests.support.builders.slurm_cgroups import unpack
from tests.support.builders.trees import tree
from tests.support.clock import FakeClock

MOUNTSTATS = Path(__file__).resolve().parents[2] / "fixtures" / "mountstats"
LNET = MOUNTSTATS.parent / "lnet" / "server-2.15"
OST = "proc/fs/lustre/obdfilter/scratch-OST0000"
OSC = "lustre/osc/home-OST0001-osc-ffff8b5270001000"
JOB = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_52"
PORT = "sys/class/infiniband/mlx5_0/ports/1"
FILES = {
    "diskstats": ("proc/diskstats",),
    "host": ("proc/stat", "proc/meminfo", "proc/loadavg"),
    "net": ("proc/net/dev", "proc/net/snmp", "proc/net/netstat", "proc/net/softnet_stat"),
    "lustre": (
        f"{OST}/stats",
        f"{OST}/brw_stats",
        f"{OST}/job_stats",
        "proc/fs/lustre/ost/OSS/ost_io/stats",
        f"sys/kernel/debug/{OSC}/stats",
        f"proc/fs/{OSC}/rpc_stats",
        f"proc/fs/{OSC}/import",
        f"sys/fs/{OSC}/cur_dirty_bytes",
    ),
    "gluster": (f"glusterd/stats/{BRICK}", f"glusterd/stats/{MOUNT}"),
    "lwfs": ("lwfs.log",),
    "mountstats": ("proc/self/mountstats",),
    "infiniband": (f"{PORT}/state", f"{PORT}/counters/port_xmit_data"),
    "cgroup": (f"{JOB}/io.stat", f"{JOB}/cpu.stat", f"{JOB}/memory.current"),
    "lnet": tuple(f"sys/kernel/debug/lnet/{name}" for name in ("stats", "nis", "peers")),
}
ON_REQUEST = ("tcp_destination", "inet_diag", "lnet_ni_health", "lnet_peer_health")
SAMPLES = SLOWER  # in which a collector has read every file once
SAID = re.compile(r"lines_\w+|values_\w+|files_(?:gone|failed)|dumps_\w+|truncations|found|ports|devices")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def other_units(path: Path) -> None:
    text = re.sub(rb"usecs?|bytes|reqs|Gb/sec|kB|latency_ave_usec", b"furlongs", path.read_bytes())
    path.write_bytes(re.sub(rb"\b(\d+)(?=\s|$|,|\})", rb"\1us", text))


def negative(path: Path) -> None:
    path.write_bytes(re.sub(rb"(?<![\w.:/-])(?=\d)", b"-", path.read_bytes()))


def past_64_bits(path: Path) -> None:
    path.write_bytes(re.sub(rb"(?<![\w.:/-])\d+", b"%d" % 2**64, path.read_bytes()))


def no_newline(path: Path) -> None:
    path.write_bytes(path.read_bytes().rstrip(b"\n"))


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def endless_line(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)


def gone(path: Path) -> None:
    path.unlink()


def closed(path: Path) -> None:
    path.chmod(0)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


SPOIL: tuple[Callable[[Path], None], ...] = (
    *(empty, half, other_units, negative, past_64_bits, no_newline, binary, endless_line, gone, closed, loop),
)

# What cannot be told from a value, or is none of a collector's business.
QUIET = {
    *((no_newline.__name__, file) for files in FILES.values() for file in files),
    *((half.__name__, file) for files in FILES.values() for file in files),  # a shorter number is one, too
    (other_units.__name__, f"{PORT}/state"),  # has none
    (past_64_bits.__name__, "proc/loadavg"),  # a float
    *((closed.__name__, file) for file in FILES["gluster"]),  # not read again until it is written again
    (closed.__name__, "lwfs.log"),  # is open
    (empty.__name__, f"{JOB}/io.stat"),  # a job without I/O
}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A node that is all at once, readable for everybody."""
    folder = Path(tempfile.mkdtemp())  # those of pytest are for their owner alone
    folder.chmod(0o755)
    for name in ("oss-2.10", "client-2.16"):
        shutil.copytree(LUSTRE / name, folder, dirs_exist_ok=True)
    tree(folder / "proc", PROC)
    tree(folder / "sys", SYSFS)
    Node(folder / "sys", "mlx5")
    unpack(CGROUPS / "v2.txt", folder / "sys")
    Folder(folder, BRICK, MOUNT)
    shutil.copy(LWFS / "released.log", folder / "lwfs.log")
    shutil.copytree(LNET, folder / "sys/kernel/debug/lnet")
    (folder / "proc" / "self").mkdir()
    shutil.copy(MOUNTSTATS / "client-4.18", folder / "proc/self/mountstats")
    yield folder
    shutil.rmtree(folder)


@contextmanager
def spoilt(path: Path, spoil: Callable[[Path], None]) -> Iterator[None]:
    """While it lasts the file is not as it was, and root is nobody, so that permissions mean something."""
    data, found, user = path.read_bytes(), path.stat(), os.geteuid()
    spoil(path)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def state(collected: Collected) -> tuple[object, ...]:
    """What shows that something is wrong: the error, rows and values that are missing, what is counted."""
    rows = [(r.fields, row) for r in collected.readings for row in r.rows]
    said = [
        (f.name, v)
        for fields, row in rows
        for f, v in zip(fields, row, strict=True)
        if SAID.fullmatch(f.name)
    ]
    absent = sum(value is None for _, row in rows for value in row)
    return collected.health.error, len(rows), absent, tuple(said)


def made(root: Path, clock: FakeClock) -> dict[str, Collector]:
    tables = {
        "lustre": LustreSettings(job_stats=True),
        "gluster": GlusterSettings(directory=root / "glusterd"),
        "lwfs": LwfsSettings(log=root / "lwfs.log"),
    }
    roots = Roots(root / "proc", root / "sys", root / "sys/kernel/debug")
    return {name: make_collector(name, tables, roots, clock.wall_ns, clock) for name in FILES}


def sampled(collector: Collector, clock: FakeClock) -> Collected:
    """A sample a second after the one before, all of it fit to be sent."""
    clock.sleep(1)
    collected = collect(collector, clock)
    assert collected.bug is None
    for reading in collected.readings:
        assert Encoder(RAW).encode(range(len(reading.rows)), [list(reading.rows)], [0])
    return collected


def test_while_all_is_well_no_state_changes(root: Path) -> None:
    clock = FakeClock()
    for collector in made(root, clock).values():
        first, *others = (sampled(collector, clock) for _ in range(1 + SAMPLES))
        read = {reading.source: reading.fields for reading in first.readings}
        for source, fields in registry.find(collector.name).sources.items():
            assert set(fields) <= set(read.get(source, fields)), source
            assert source in read or source in ON_REQUEST
        assert (first.health.error, first.health.components > 0) == ("", True)
        assert {state(other) for other in others} == {state(first)}


@pytest.mark.parametrize("spoil", SPOIL, ids=lambda spoil: str(spoil.__name__))
@pytest.mark.parametrize(("name", "file"), [(name, file) for name, files in FILES.items() for file in files])
def test_one_clear_state_and_the_others_go_on(
    root: Path, name: str, file: str, spoil: Callable[[Path], None]
) -> None:
    clock = FakeClock()
    collectors = made(root, clock)
    before = {other: state(sampled(collector, clock)) for other, collector in collectors.items()}
    with spoilt(root / file, spoil):
        after = [state(sampled(collectors[name], clock)) for _ in range(SAMPLES)]
        others = {other: state(sampled(c, clock)) for other, c in collectors.items() if other != name}
    assert others == {other: before[other] for other in others}
    assert (spoil.__name__, file) in QUIET or any(one != before[name] for one in after)
    errors = {str(error) for error, *_ in after if error}
    assert len(errors) <= 1
    assert all(str(root) in error and "\n" not in error for error in errors)
