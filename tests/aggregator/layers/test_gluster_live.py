"""A real brick and a real client of GlusterFS: the translator or disk that holds calls is named."""

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aggregator.layers.analysed import Analysed, analysed
from tests.aggregator.layers.loop_file_system import BLKIO, LoopFileSystem, run
from tests.support.processes import started
from tests.support.wait import wait_until

NEEDED = ("glusterfsd", "glusterfs", "losetup", "mkfs.ext4", "mount", "umount")
DUMPS = Path("/var/run/gluster")
THROTTLE = BLKIO / "blkio.throttle.write_bps_device"
CALLS, CALL_BYTES = 24, 65536

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="a mount needs root"),
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs FUSE"),
    pytest.mark.skipif(not THROTTLE.exists(), reason="no blkio controller (v1)"),
]


def graph(*translators: tuple[str, str, dict[str, object]]) -> str:
    """A volume file, from the lowest translator up."""
    lines: list[str] = []
    below = ""
    for name, kind, options in translators:
        lines += [f"volume {name}", f"  type {kind}"]
        lines += [f"  option {key} {value}" for key, value in options.items()]
        lines += [f"  subvolumes {below}"] if below else []
        lines += ["end-volume", ""]
        below = name
    return "\n".join(lines)


def delay(held: bool) -> list[tuple[str, str, dict[str, object]]]:
    """It winds calls on within its own frame, so that they are held at the translator below it."""
    options = {"delay-percentage": 100, "delay-duration": 150_000, "enable": "WRITE"}
    return [("held", "debug/delay-gen", options)] if held else []


class Volume:
    """One brick on a loop device, mounted by one client; `held`: where writes wait for 150 ms."""

    def __init__(self, disk: LoopFileSystem, folder: Path, held: str) -> None:
        self.disk, self.folder, self.mounted, self.held = disk, folder, folder / "client", held
        self.mounted.mkdir()
        brick = disk.folder / "brick"
        brick.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        at = {"transport-type": "tcp", "transport.socket.listen-port": self.port}
        server = {**at, "transport.socket.bind-address": "127.0.0.1", "auth.addr.brick.allow": "127.0.0.1"}
        to = {
            "transport-type": "tcp",
            "remote-host": "127.0.0.1",
            "remote-port": self.port,
            "remote-subvolume": "brick",
        }
        (folder / "brick.vol").write_text(
            graph(
                ("posix", "storage/posix", {"directory": brick}),
                ("locks", "features/locks", {}),
                *delay(held == "locks"),
                ("threads", "performance/io-threads", {}),
                ("brick", "debug/io-stats", {}),
                ("server", "protocol/server", server),
            )
        )
        (folder / "client.vol").write_text(
            graph(
                ("client-0", "protocol/client", to),
                *delay(held == "network"),
                ("threads", "performance/io-threads", {}),
                *delay(held == "client"),
                ("vol", "debug/io-stats", {}),
            )
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[int, int]]:
        """Process ids of brick and client."""

        def command(program: str, side: str, *words: object) -> list[object]:
            return [
                program,
                "-N",
                "-f",
                self.folder / f"{side}.vol",
                "-l",
                self.folder / f"{side}.log",
                *words,
            ]

        with contextlib.ExitStack() as stack:
            brick = stack.enter_context(started(command("glusterfsd", "brick")))
            wait_until(lambda: brick.poll() is not None or listens(self.port), "the brick")
            client = stack.enter_context(started(command("glusterfs", "client", self.mounted)))
            stack.callback(run, "umount", "--lazy", self.mounted)
            for pid in (brick.pid, client.pid):
                stack.callback(remove_dumps, pid)
            wait_until(lambda: client.poll() is not None or self.mounted.is_mount(), "the mount")
            assert client.poll() is None, (self.folder / "client.log").read_text()
            yield brick.pid, client.pid

    def written(self) -> None:
        """Writes, one after the other; without a fault not synchronous, as a busy machine's disk is slow."""
        synchronous = os.O_DSYNC if self.held else 0
        file = os.open(self.mounted / "data", os.O_CREAT | os.O_WRONLY | synchronous)
        try:
            for at in range(CALLS):
                os.pwrite(file, os.urandom(CALL_BYTES), at * CALL_BYTES)
        finally:
            os.close(file)

    def disk_counters(self) -> str:
        """The line of the brick's device."""
        name = f" {Path(self.disk.device).name} "
        return next(
            line for line in Path("/proc/diskstats").read_text().splitlines(keepends=True) if name in line
        )

    def measured(self) -> Analysed:
        """The counters of the writes, analysed."""
        kept = self.folder / "kept"
        kept.mkdir()
        with self.running() as pids:
            for pid in pids:
                os.kill(pid, signal.SIGUSR2)
            self.written()  # makes the file
            for pid in pids:
                dump(pid, kept / f"glusterdump.{pid}.dump.1")
            (kept / "before").write_text(self.disk_counters())
            self.written()
            (kept / "after").write_text(self.disk_counters())
            for pid in pids:
                dump(pid, kept / f"glusterdump.{pid}.dump.2")
        return analysed(*sorted(kept.iterdir()))


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def remove_dumps(pid: int) -> None:
    for path in DUMPS.glob(f"glusterdump.{pid}.dump.*"):
        path.unlink()


def dump(pid: int, path: Path) -> None:
    """Moves a statedump of a process to `path`."""
    os.kill(pid, signal.SIGUSR1)

    def whole() -> bool:
        found = list(DUMPS.glob(f"glusterdump.{pid}.dump.*"))
        return bool(found) and "DUMP-END-TIME" in found[0].read_text(errors="replace")

    wait_until(whole, "the statedump")
    (found,) = DUMPS.glob(f"glusterdump.{pid}.dump.*")
    shutil.move(found, path)


@pytest.fixture(name="disks")
def loop_devices(tmp_path: Path) -> Iterator[tuple[LoopFileSystem, LoopFileSystem]]:
    """Two devices, the second on a file of the first."""
    with contextlib.ExitStack() as stack:
        try:
            lower = LoopFileSystem(tmp_path / "image", tmp_path / "lower", 160)
            stack.callback(lower.close)
            upper = LoopFileSystem(lower.folder / "image", tmp_path / "upper", 64)
            stack.callback(upper.close)
        except AssertionError as exc:  # of run_command
            pytest.skip(f"no loop device: {exc}")
        yield lower, upper


@pytest.mark.alone
@pytest.mark.parametrize("held", ["client", "network", "locks", "file system", "disk", ""])
def test_the_layer_that_holds_writes_is_named(
    disks: tuple[LoopFileSystem, LoopFileSystem], tmp_path: Path, held: str
) -> None:
    lower, disk = disks
    volume = Volume(disk, tmp_path, held)
    throttled = {"file system": disk.number, "disk": lower.number}.get(held)
    if throttled:
        THROTTLE.write_text(f"{throttled} {512 << 10}")
    try:
        found = volume.measured()
    finally:
        if throttled:
            THROTTLE.write_text(f"{throttled} 0")
    brick = disk.folder / "brick"
    name = Path(disk.device).name
    named = {
        "client": "performance/io-threads of client glusterdump.",
        "network": "between client and brick",
        "locks": f"features/locks of brick {brick}",
        "file system": f"storage/posix of brick {brick}",
        "disk": f"disk {name} below brick {brick}",
    }
    if held:
        ((kind, candidate),) = found.findings
        assert (kind, candidate.startswith(named[held])) == ("slow", True), candidate
        assert found.layer("disk", name)["requests"] >= CALLS
    else:
        assert found.findings == []
    posix = found.layer("storage/posix")
    assert posix["requests"] == CALLS
    assert found.layer("mount/fuse")["write_us"] > posix["write_us"] > 0
