"""The collector `mountstats` over fixtures, and over files that are cut off, empty or hostile."""

import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.cli import main
from laggard_agent.collectors.mountstats.collector import Mountstats, MountstatsSettings
from laggard_agent.collectors.mountstats.parse import (
    TRANSPORT_COUNTERS,
    NotMountstatsError,
    counters_of,
    parse,
)
from laggard_common.wire.limits import MAX_FIELDS
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "mountstats"
HOME, SOFTWARE = "filer-1:/export/home", "[2001:db8::7]:/export/soft\\040ware"
SCRATCH, FAST = "filer-2.example.org:/scratch", "192.0.2.33:/fast"
OTHER = f"{SCRATCH} on /scratch-direct"


class Client:
    """A node with a /proc that has one file."""

    def __init__(self, root: Path, fixture: str, settings: MountstatsSettings | None = None) -> None:
        self.file = root / "proc/self/mountstats"
        self.file.parent.mkdir(parents=True)
        shutil.copy(FIXTURES / fixture, self.file)
        chosen = settings or MountstatsSettings()
        self.sampled = Sampled(lambda now, _: Mountstats(chosen, surroundings(now, procfs=root / "proc")))

    def change(self, old: str, new: str) -> "Client":
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))
        return self

    def node(self) -> dict[str, int | float | None]:
        return self.sampled.sample().row("mountstats", "mountstats")


def test_nfs_3(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-4.18")
    assert client.node() == {"mounts": 2, "mounts_left_out": 0, "lines_not_understood": 0}
    assert client.sampled.ids("nfs_mount") == [HOME, SOFTWARE]
    row = client.sampled.row("nfs_mount", HOME)
    assert (row["READ_ops"], row["READ_queue_ms"], row["READ_rtt_ms"], row["READ_execute_ms"]) == (
        *(6000, 600, 17400, 18300),
    )
    assert (row["WRITE_ntrans"], row["WRITE_timeouts"], row["WRITE_bytes_sent"]) == (2051, 1, 2147811328)
    assert row["READ_errors"] is None  # before Linux 5.3
    assert (row["xprt_sends"], row["xprt_recvs"], row["xprt_bad_xids"], row["xprt_connects"]) == (
        *(190021, 190020, 1, 2),
    )
    assert (row["server_read_bytes"], row["write_pages"], row["delays"]) == (6291456000, 524288, 0)
    assert row["pnfs_reads"] is None
    assert client.sampled.row("nfs_mount", SOFTWARE)["xprt_sends"] == 4201
    labels = [dict(c.labels) for c in client.sampled.readings["nfs_mount"].components]
    home = {"server": "filer-1", "export": "/export/home", "path": "/home", "vers": "3", "proto": "tcp"}
    assert labels[0] == home
    assert (labels[1]["server"], labels[1]["path"]) == ("[2001:db8::7]", "/opt/soft\\040ware")


def test_nfs_4_counts_a_super_block_once_however_often_it_is_mounted(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-6.8")
    assert client.node()["mounts"] == 3
    assert client.sampled.ids("nfs_mount") == [SCRATCH, OTHER, FAST]
    row = client.sampled.row("nfs_mount", SCRATCH)
    assert (row["READ_ops"], row["LOOKUP_errors"], row["LAYOUTGET_ops"]) == (412000, 31020, 3)
    assert row["xprt_sends"] == 1240110 + 1240021  # of both connections
    assert (row["xprt_connects"], row["pnfs_writes"]) == (4, 0)
    assert client.sampled.row("nfs_mount", OTHER)["READ_ops"] == 100
    assert client.sampled.row("nfs_mount", OTHER)["OPEN_ops"] == 0
    assert client.sampled.row("nfs_mount", FAST)["xprt_recvs"] == 88010
    # An operation that nobody has called yet has no column.
    assert "READ_PLUS_ops" not in row


def test_mounts_that_look_alike_are_told_apart_by_their_super_blocks(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-4.18").change("mounted on /opt/soft\\040ware", "mounted on /opt/soft")
    text = client.file.read_text()
    home = next(part for part in text.split("device ") if part.startswith(f"{HOME} "))
    again = home.replace("mounted on /home", "mounted on /copy").replace("READ: 6000 6000", "READ: 70 70")
    client.file.write_text(f"{text}device {again}")
    assert client.node()["mounts"] == 2
    line = "3{0} 25 0:5{0} / {1} rw,relatime shared:{0} - nfs " + HOME + " rw,vers=3\n"
    info = client.file.with_name("mountinfo")
    info.write_text(line.format(1, "/home") + line.format(1, "/copy"))
    assert client.node()["mounts"] == 2
    info.write_text(line.format(1, "/home") + line.format(2, "/copy"))
    assert client.node()["mounts"] == 3
    assert client.sampled.row("nfs_mount", f"{HOME} on /copy")["READ_ops"] == 70


def test_two_mounts_over_one_another_keep_their_ids(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-4.18")
    text = client.file.read_text()
    home = next(part for part in text.split("device ") if part.startswith(f"{HOME} "))
    again = home.replace("opts:\t", "opts:\tnosharecache,").replace("READ: 6000 6000", "READ: 70 70")
    client.file.write_text(f"{text}device {again}")
    for _ in range(3):
        assert client.node()["mounts"] == 3
        assert client.sampled.row("nfs_mount", HOME)["READ_ops"] == 6000
        assert client.sampled.row("nfs_mount", f"{HOME} on /home")["READ_ops"] == 70


def test_a_mount_does_not_take_over_the_id_of_one_that_goes(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-6.8")
    client.sampled.sample()
    whole = client.file.read_text().split("device ")
    others = [part for part in whole if not part.startswith(SCRATCH) or "/scratch-direct" in part]
    client.file.write_text("device ".join(others))
    assert client.node()["mounts"] == 2
    assert client.sampled.ids("nfs_mount") == [OTHER, FAST]
    client.file.write_text("device ".join(whole))
    assert client.node()["mounts"] == 3
    assert client.sampled.row("nfs_mount", OTHER)["READ_ops"] == 100


def test_columns_grow_and_rows_without_change_stay(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-6.8")
    first = client.sampled.sample().readings["nfs_mount"]
    client.change("age:\t3600411", "age:\t3600412")
    second = client.sampled.sample().readings["nfs_mount"]
    assert second.components is first.components
    assert all(a is b for a, b in zip(first.rows, second.rows, strict=True))
    client.change("READ_PLUS: 0 0 0 0 0 0 0 0 0", "READ_PLUS: 7 7 0 1400 70 1 2 3 0")
    third = client.sampled.sample().readings["nfs_mount"]
    assert [f.name for f in third.fields][: len(second.fields)] == [f.name for f in second.fields]
    assert client.sampled.row("nfs_mount", SCRATCH)["READ_PLUS_execute_ms"] == 3


def test_which_mounts(tmp_path: Path) -> None:
    chosen = MountstatsSettings(include=("filer-.*",), exclude=(".*/home",))
    client = Client(tmp_path, "client-4.18", chosen)
    assert client.node() == {"mounts": 0, "mounts_left_out": 0, "lines_not_understood": 0}
    assert client.sampled.ids("nfs_mount") == []
    one = Client(tmp_path / "one", "client-4.18", MountstatsSettings(max_mounts=1))
    assert one.node()["mounts_left_out"] == 1
    assert one.sampled.ids("nfs_mount") == [HOME]


def test_a_mount_that_comes_and_goes(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-4.18")
    client.sampled.sample()
    whole = client.file.read_text()
    client.file.write_text(whole.partition("device filer-1")[0])
    assert client.node()["mounts"] == 0
    assert client.sampled.ids("nfs_mount") == []
    client.file.write_text(whole)
    assert client.node()["mounts"] == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("READ: 6000 6000 0", "READ: 6000 6000"),
        ("READ: 6000", "READ: -6000"),
        ("READ: 6000", f"READ: {2**64}"),
        ("READ: 6000", "READ: 6000us"),
        ("READ: 6000", "rëad: 6000"),
        ("xprt:\ttcp 875", "xprt:\tpigeon 875"),
        ("xprt:\ttcp 875 1 2 0 11 190021 190020 1", "xprt:\ttcp 875"),
        ("bytes:\t7340032000", "bytes:\tmany"),
        ("\tsec:\tflavor=1", "\tnew in this kernel"),
        ("statvers=1.1", "statvers=2.0"),
        ("with fstype nfs statvers=1.1\n\topts:\trw", "with fstype nfs\n\topts:\trw"),
    ],
)
def test_a_line_that_is_not_understood_is_counted(tmp_path: Path, old: str, new: str) -> None:
    client = Client(tmp_path, "client-4.18").change(old, new)
    assert (client.node()["lines_not_understood"] or 0) > 0
    assert client.sampled.error == ""


def test_names_that_are_none_are_left_out(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-4.18").change("filer-1:/export/home", "filer\x1b[2J:/" + "x")
    assert client.node()["mounts_left_out"] == 1
    client.change("filer\x1b[2J:/x", "f:/" + "x" * 300)
    assert client.node()["mounts_left_out"] == 1


def test_columns_are_bounded(tmp_path: Path) -> None:
    client = Client(tmp_path, "client-4.18")
    invented = "".join(f"\t        OP{n}: 1 1 0 1 1 1 1 1\n" for n in range(300))
    client.change("\tper-op statistics\n", f"\tper-op statistics\n{invented}")
    client.sampled.sample()
    assert MAX_FIELDS - 9 < len(client.sampled.readings["nfs_mount"].fields) <= MAX_FIELDS


@pytest.mark.parametrize("fixture", ["client-4.18", "client-6.8"])
def test_a_file_that_is_cut_off_anywhere(fixture: str) -> None:
    data = (FIXTURES / fixture).read_bytes()
    whole = {(mount.device, mount.path): mount for mount in parse(data)[0]}
    for end in range(1, len(data), 7):
        try:
            mounts, leftovers = parse(data[:end])
        except NotMountstatsError:
            assert b"with fstype" not in data[: max(end - len(b" sysfs"), 0)]
            continue
        assert leftovers <= 2
        for mount in mounts[:-1]:
            assert mount.values == whole[mount.device, mount.path].values


def test_any_bytes(tmp_path: Path) -> None:
    chance = random.Random(3)
    data = (FIXTURES / "client-6.8").read_bytes()
    client = Client(tmp_path, "client-6.8")
    for _ in range(60):
        spoilt = bytearray(data)
        for _ in range(chance.randrange(1, 40)):
            at = chance.randrange(len(spoilt))
            spoilt[at : at + chance.randrange(9)] = chance.randbytes(chance.randrange(9))
        client.file.write_bytes(spoilt)
        client.sampled.sample()


@pytest.mark.parametrize("content", [b"", b"\n", bytes(range(256)) * 40])
def test_no_mountstats_at_all(tmp_path: Path, content: bytes) -> None:
    client = Client(tmp_path, "client-4.18")
    client.file.write_bytes(content)
    assert client.sampled.sample().error == f"{client.file}: no line is of a mount"
    client.file.unlink()
    assert "No such file" in client.sampled.sample().error


def test_once_and_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(tmp_path, "client-4.18")

    def once(procfs: Path) -> list[dict[str, object]]:
        assert main(["--once", "--collectors", "mountstats", "--procfs", str(procfs)]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    lines = once(tmp_path / "proc")
    assert [(line["collector"], line["component"]) for line in lines] == [
        ("nfs_mount", HOME),
        ("nfs_mount", SOFTWARE),
        ("mountstats", "mountstats"),
    ]
    out = tmp_path / "out"
    assert main(["--dump", str(out), "--collectors", "mountstats", "--procfs", str(tmp_path / "proc")]) == 0
    capsys.readouterr()
    assert (out / "proc/self/mountstats").read_bytes() == client.file.read_bytes()
    again = once(out / "proc")
    assert [line["counters"] for line in again] == [line["counters"] for line in lines]


HEAD = "device srv:/exp mounted on /mnt with fstype nfs4 statvers=1.1"
TRANSPORTS = {
    "tcp": (0, (2, 5, 6, 7, 9), 10),
    "rdma": (0, (2, 5, 6, 7, 9), 22),
    "udp": (1, (2, 3, 4, 6), 7),
}
"""Counters that the kind lacks at the beginning, places of the others, and how many numbers its line has."""
COUNTS = st.integers(0, 2**40)


@given(
    kind=st.sampled_from(sorted(TRANSPORTS)),
    transports=st.lists(st.lists(COUNTS, min_size=25, max_size=25), min_size=1, max_size=4),
    more=st.integers(0, 3),
    operations=st.dictionaries(
        st.sampled_from(["READ", "WRITE", "GETATTR", "LOOKUP", "READ_PLUS"]),
        st.lists(COUNTS | st.integers(2**63, 2**64 - 1), min_size=8, max_size=11),
        min_size=1,
    ),
    cut=st.booleans(),
)
def test_statistics_of_any_kernel(
    kind: str,
    transports: list[list[int]],
    more: int,
    operations: dict[str, list[int]],
    cut: bool,
) -> None:
    """What the kernel printed is there, what it did not print or cannot have counted is absent."""
    lacking, places, width = TRANSPORTS[kind]
    lines = [HEAD, "\topts:\trw,vers=4.2", "\tage:\t9", "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)"]
    lines += [f"\txprt:\t{kind} {' '.join(map(str, numbers[: width + more]))}" for numbers in transports]
    lines += ["\tper-op statistics", "\t        NULL: 1 1 0 44 24 0 0 0 0"]
    lines += [f"\t{name:>12}: {' '.join(map(str, numbers))}" for name, numbers in operations.items()]
    text = "\n".join(lines) + ("" if cut else "\n\n")
    (mount,), _ = parse(text.encode())
    names = TRANSPORT_COUNTERS[lacking:]
    expected = {name: sum(n[place] for n in transports) for name, place in zip(names, places, strict=True)}
    for name, numbers in list(operations.items())[: -1 if cut else None]:
        counted = zip(counters_of(name), numbers, strict=False)
        expected |= {counter: number for counter, number in counted if number < 2**63}
    found = {name: n for name, n in mount.values.items() if not name.startswith("NULL")}
    assert found == expected
    odd = sum(max(numbers[:9]) >= 2**63 for numbers in list(operations.values())[: -1 if cut else None])
    assert mount.leftovers == odd
