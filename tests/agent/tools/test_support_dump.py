"""`--dump DIR`: what `--once` reads from the dump is what it read from the source."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laggard_agent.cli import main
from laggard_agent.tools import support_dump as dumping
from laggard_agent.tools.support_dump import Copier
from tests.agent.collectors.diskstats.test_block_devices import NAMES, SYSFS
from tests.support.builders.gluster import BRICK, CLIENT, Folder
from tests.support.builders.lustre import FIXTURES, copied
from tests.support.builders.lwfs import FIXTURES as LWFS
from tests.support.builders.net import FILES
from tests.support.builders.trees import disk_line, tree
from tests.support.processes import run_command

CPU = "cpu  86040 120 31000 990000 400 0 77 3 0 0\n"
STAT = f"{CPU}{CPU.replace('cpu ', 'cpu0')}intr 900 1 2\nctxt 5000\nsoftirq 70 1\n"
MEMINFO = (
    "MemTotal: 24000 kB\nMemFree: 9000 kB\nMemAvailable: 20000 kB\nBuffers: 10 kB\nCached: 11 kB\n"
    "Active: 1 kB\nInactive: 2 kB\nShmem: 3 kB\nSlab: 4 kB\nSReclaimable: 5 kB\n"
)
PROC = {
    "diskstats": "".join(disk_line(name, *range(n, n + 17)) for n, name in enumerate(NAMES.split())),
    "stat": STAT,
    "meminfo": MEMINFO,
    "loadavg": "0.10 0.20 0.30 1/123 456\n",
    **FILES,
}
BASE = "diskstats,net,host"


def host(folder: Path) -> list[str]:
    """The options for a tree of a host."""
    tree(folder / "proc", PROC)
    tree(folder / "sys", SYSFS)
    return ["--procfs", str(folder / "proc"), "--sysfs", str(folder / "sys")]


def of_dump(folder: Path) -> list[str]:
    """The options for a dump."""
    return [w for name in ("proc", "sys") for w in (f"--{name}fs", str(folder / name))] + [
        "--debugfs",
        str(folder / "debugfs"),
    ]


def once(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    """What `--once` printed, but for the times and what the agent itself costs."""
    capsys.readouterr()
    main(["--once", *options])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        del line["time"]
        line["counters"].pop("agent_cpu_us", None)
        line["counters"].pop("agent_resident_bytes", None)
    return lines


def manifest(folder: Path, kind: str) -> list[list[str]]:
    """The lines of one kind, without it."""
    lines = [line.split("\t") for line in (folder / "MANIFEST").read_text().splitlines()]
    return [line[1:] for line in lines if line[0] == kind]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = host(tmp_path / "host"), tmp_path / "out"
    assert main(["--dump", str(out), "--collectors", BASE, *source]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    names = [name for name, _ in manifest(out, "copied")]
    sizes = sum(int(size) for _, size in manifest(out, "copied"))
    assert said.err == f"{out}: {len(names)} files, {sizes} bytes\n"
    before = once(capsys, "--collectors", BASE, *source)
    assert [line["component"] for line in before][:2] == ["sda", "md0"]
    assert once(capsys, "--collectors", BASE, *of_dump(out)) == before
    assert files(out) == {*names, *(name for (name,) in manifest(out, "name only")), "MANIFEST"}
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "host" / name).read_bytes()
    assert out.stat().st_mode & 0o777 == 0o700


def test_the_command_that_the_manifest_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--dump", str(tmp_path / "out"), "--collectors", "net", *host(tmp_path)]) == 0
    command = (tmp_path / "out/MANIFEST").read_text().splitlines()[2].split()
    assert command[:2] == ["#", "laggard-agent"]
    monkeypatch.chdir(tmp_path / "out")
    assert main(command[2:]) == 0


def test_links_become_folders_of_the_same_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the kernel's own /sys/block and holders."""
    tree(tmp_path / "sys/devices/pci/sda", {"size": "8\n", "device/wwid": "naa.5\n"})
    tree(tmp_path / "sys/devices/pci/sdb", {"size": "8\n", "holders/x": ""})
    tree(tmp_path / "sys/devices/virtual/dm-0", {"dm/uuid": "LVM-1\n"})
    holders = tmp_path / "sys/devices/pci/sdb/holders"
    (holders / "x").unlink()
    (holders / "dm-0").symlink_to("../../../virtual/dm-0")
    (tmp_path / "sys/block").mkdir()
    for name, at in (("sda", "pci"), ("sdb", "pci"), ("dm-0", "virtual")):
        (tmp_path / "sys/block" / name).symlink_to(f"../devices/{at}/{name}")
    lines = "".join(disk_line(name, *range(11)) for name in ("sda", "sdb", "dm-0"))
    tree(tmp_path / "proc", {"diskstats": lines})
    source = ["--procfs", str(tmp_path / "proc"), "--sysfs", str(tmp_path / "sys")]
    out = tmp_path / "out"
    assert main(["--dump", str(out), "--collectors", "diskstats", *source]) == 0
    before = once(capsys, "--collectors", "diskstats", *source)
    assert [line["id"] for line in before] == ["naa.5", "LVM-1"]
    assert once(capsys, "--collectors", "diskstats", *of_dump(out)) == before
    assert (out / "sys/block/sda/device/wwid").read_text() == "naa.5\n"
    assert not any(path.is_symlink() for path in out.rglob("*"))


@pytest.mark.parametrize("name", ["client-2.16", "oss-2.10", "server-2.15"])
def test_lustre(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = FIXTURES / name, tmp_path / "out"
    for tree_name in ("proc", "sys"):
        (tmp_path / tree_name).mkdir()
    procfs, sysfs = (p if p.is_dir() else tmp_path / p.name for p in (root / "proc", root / "sys"))
    config = tmp_path / "agent.toml"
    config.write_text('node = "n"\ncollectors = ["lustre"]\n[lustre]\njob_stats = true\n')
    options = ["--config", str(config)]
    source = [*options, "--procfs", str(procfs), "--sysfs", str(sysfs)]
    assert main(["--dump", str(out), *source]) == 0
    before = once(capsys, *source)
    assert len(before) > 2
    assert once(capsys, *options, *of_dump(out)) == before
    in_debugfs = (root / "sys/kernel/debug").is_dir()
    assert any(name.startswith("debugfs/lustre/") for name in files(out)) == in_debugfs


def test_what_lies_outside_the_roots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files of gluster and lwfs, with their times; of glusterd's volumes names alone."""
    glusterd = Folder(tmp_path, BRICK, CLIENT).root
    log = Path(shutil.copy(LWFS / "server.log", tmp_path / "lwfsd.log"))
    (volume,) = (glusterd / "vols").iterdir()
    (volume / "info").write_text("password=secret\n")
    for brick in (volume / "bricks").iterdir():
        brick.write_text("password=secret\n")

    def config(name: str, root: str) -> str:
        path = tmp_path / name
        path.write_text(
            f'node = "n"\ncollectors = ["gluster", "lwfs"]\n'
            f'[gluster]\ndirectory = "{root}{glusterd}"\n[lwfs]\nlog = "{root}{log}"\n'
        )
        return str(path)

    out = tmp_path / "out"
    source = config("source.toml", "")
    assert main(["--dump", str(out), "--config", source]) == 0
    before = once(capsys, "--config", source)
    assert {"gluster_brick", "gluster_client", "lwfs"} <= {line["collector"] for line in before}
    assert once(capsys, "--config", config("dumped.toml", f"{out}/files")) == before
    assert [path for path in files(out) if b"secret" in (out / path).read_bytes()] == []


def test_without_a_sysfs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then the dump has none either, and is read without."""
    source, out = host(tmp_path)[:2], tmp_path / "out"
    assert main(["--dump", str(out), "--collectors", BASE, *source]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["MANIFEST", "proc"]
    before = once(capsys, "--collectors", BASE, *source)
    assert once(capsys, "--collectors", BASE, "--procfs", str(out / "proc")) == before


def test_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["--dump", str(out), "--collectors", BASE]) == 0
    dumped = once(capsys, "--collectors", BASE, *of_dump(out))
    now = once(capsys, "--collectors", BASE)
    assert len(dumped) >= 2
    heads = [
        [{**line, "counters": sorted(line["counters"])} for line in lines]  # type: ignore[call-overload]
        for lines in (dumped, now)
    ]
    assert heads[0] == heads[1]


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """As a user who may not read everything, who can reach `folder` as the current one."""
    user = os.geteuid()
    folder.chmod(0o777)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_permission_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be read is named; the collector that needs it fails, and the others are copied."""
    root = copied("oss-2.10", tmp_path)
    tree(root / "proc", PROC)
    monkeypatch.chdir(tmp_path)
    options = ["--collectors", "net,lustre", "--procfs", "oss-2.10/proc"]
    main(["--once", *options])
    capsys.readouterr()
    (root / "proc/net/dev").chmod(0)
    (root / "proc/fs/lustre/obdfilter/scratch-OST0001/stats").chmod(0)
    with unprivileged(tmp_path):
        assert main(["--dump", "out", *options]) == 1
    lines = capsys.readouterr().err.splitlines()
    stats = "fs/lustre/obdfilter/scratch-OST0001/stats"
    assert lines[:2] == [
        "laggard-agent: net: oss-2.10/proc/net/dev: Permission denied",
        f"laggard-agent: lustre: oss-2.10/proc/{stats}: Permission denied",
    ]
    assert lines[2].endswith(", 2 not read (see MANIFEST)")
    assert manifest(tmp_path / "out", "not read") == [
        [f"proc/{stats}", "Permission denied"],
        ["proc/net/dev", "Permission denied"],
    ]
    assert [line[0] for line in manifest(tmp_path / "out", "failed")] == ["net", "lustre"]
    assert (tmp_path / "out/proc/net/snmp").is_file()
    assert (tmp_path / "out/proc/fs/lustre/obdfilter/scratch-OST0000/stats").is_file()


def test_a_file_that_is_not_there_fails_its_collector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = host(tmp_path), tmp_path / "out"
    (tmp_path / "proc/diskstats").unlink()
    assert main(["--dump", str(out), "--collectors", "diskstats,net", *source]) == 1
    assert manifest(out, "failed") == [["diskstats", f"{tmp_path}/proc/diskstats: No such file or directory"]]
    assert manifest(out, "not read") == []
    assert (out / "proc/net/dev").read_text() == FILES["net/dev"]


def test_a_file_that_is_too_long_is_not_copied(tmp_path: Path) -> None:
    source, out = host(tmp_path), tmp_path / "out"
    os.truncate(tmp_path / "proc/net/dev", 16 * 1024 * 1024 + 1)
    assert main(["--dump", str(out), "--collectors", "net", *source]) == 1
    assert manifest(out, "not read") == [["proc/net/dev", "longer than 16777216 bytes"]]


def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(small)]
    if run_command(command, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        assert main(["--dump", str(small), "--collectors", BASE, *host(tmp_path)]) == 1
        assert capsys.readouterr().err == (
            f"laggard-agent: --dump: {small}: No space left on device; the dump is not whole\n"
        )
    finally:
        run_command(["umount", str(small)])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("full", "is not empty"),
        ("full/x", "is not a directory"),
        ("no/where", "No such file or directory"),
        ("full/x/y", "Not a directory"),
    ],
)
def test_folders_that_cannot_be_used(
    name: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path / "full", {"x": ""})
    assert main(["--dump", str(tmp_path / name), *host(tmp_path)]) == 2
    assert capsys.readouterr().err == f"laggard-agent: {tmp_path}/{name}: {reason}\n"
    assert files(tmp_path / "full") == {"x"}


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert main(["--dump", str(tmp_path / "out"), "--collectors", "net", *host(tmp_path)]) == 0


def test_one_thing_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dump", str(tmp_path / "out"), "--once"]) == 2
    assert capsys.readouterr().err == "laggard-agent: --dump and --once: expected one of them\n"
    assert not (tmp_path / "out").exists()


def test_where_a_file_belongs(tmp_path: Path) -> None:
    """In the innermost root, and never outside the dump; whatever bytes its name has, on one line."""
    roots = {"proc": Path("/proc"), "sys": Path("/sys"), "debugfs": Path("/sys/kernel/debug")}
    copier = Copier(tmp_path, roots)
    for path in ("/sys/kernel/debug/a", "/sys/a", "/system/a", "/proc/../../b", "/proc/c\nd\udcff"):
        copier.read(path, b"1")
    copier.finish([], {})
    expected = ["debugfs/a", "files/b", "files/system/a", r"proc/c\nd\udcff", "sys/a"]
    assert sorted(name for name, _ in manifest(tmp_path, "copied")) == sorted(expected)
    assert (tmp_path / "proc/c\nd\udcff").read_bytes() == b"1"


def test_a_dump_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumping, "MOST_BYTES", 10)
    copier = Copier(tmp_path, {"proc": Path("/proc")})
    copier.read("/proc/a", b"12345678")
    copier.read("/proc/a", b"123456")  # again: as it is now
    copier.read("/proc/b", b"12345")
    copier.read("/proc/c", b"1234")
    copier.finish([], {})
    assert manifest(tmp_path, "copied") == [["proc/a", "6"], ["proc/c", "4"]]
    assert manifest(tmp_path, "not read") == [["proc/b", "5 bytes more than the 10 of a dump"]]
