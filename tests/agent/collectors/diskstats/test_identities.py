"""A device keeps its own ID, whatever other devices come, go or change places."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.diskstats.collector import Diskstats, DiskstatsSettings
from laggard_agent.collectors.diskstats.identities import Identities, is_placeholder
from laggard_agent.collectors.diskstats.sysfs_device import Facts
from tests.support.builders.trees import disk_line, tree
from tests.support.clock import FakeClock
from tests.support.sampled import surroundings

BIG, SMALL = ("3907029168", "SSD 2TB", ""), ("1000000", "SSD 1TB", "")
ZEROS = "naa.0000000000000000"


def test_identifiers_that_identify_are_ids() -> None:
    assert Identities().assign({"sda": Facts(("naa.5", "S1"))}) == {"sda": "naa.5"}
    assert Identities().assign({"sda": Facts()}) == {"sda": "sda"}


PLACEHOLDERS = (
    ZEROS,
    "eui.0000000000000000",
    "uuid.00000000-0000-0000-0000-000000000000",
    "0x0000000000000000",
    "00000000:00000000:00000000:00000000",
    "naa.ffffffffffffffff",
    "naa.5000000000000000",
    "naa.60000000000000000000000000000000",
    "eui.0100000000000000",
    "uuid.00000000-0000-0000-0000-000000000001",
    "t10.ATA     Default string",
    "t10.ATA     To Be Filled By O.E.M.",
    "FFFFFFFF",
    "nvme.8086-0000000000000000-494e54454c-00000001",
    "nvme.8086-3030303030303030-494e54454c-00000001",
    "nvme.1234-3132333435363738-51454d55-00000001",
    "t10.ATA SOME DISK 00000000",
    "t10.",
    "0123456789",
    "123456789",
    "0123456789ABCDEF",
    "N/A",
    "None",
    "(null)",
    "unknown",
    "Default string",
    "System Serial Number",
    "To Be Filled By O.E.M.",
    "Not Specified",
    "----",
    "................",
)


@pytest.mark.parametrize("identifier", PLACEHOLDERS)
def test_placeholders_identify_nothing(identifier: str) -> None:
    assert is_placeholder(identifier)
    facts = Facts((identifier, "S3Z9NB0K"))
    assert Identities().assign({"sda": facts}) == {"sda": "S3Z9NB0K"}
    assert Identities().assign({"sda": Facts((identifier,))}) == {"sda": "sda"}


@pytest.mark.parametrize(
    "identifier",
    [
        "naa.5000c500a1b2c3d4",
        "naa.600000000000000a000000000000000b",
        "eui.0025385b11111111",
        "uuid.c8f6f0b1-0f0e-4d0c-8102-030405060708",
        "c8f6f0b1:0f0e0d0c:01020304:05060708",
        "nvme.1b36-6c61676761726431-51454d55-00000001",
        "t10.ATA QEMU HARDDISK QM00001",
        "mpath-3600a0b80",
        "LVM-0000000000000000000000000000001a",
        "vol-0f3",
        "WD-WCC4N1234567",
        "S3Z9NB0K",
        "1",
    ],
)
def test_identifiers_of_real_devices_are_none(identifier: str) -> None:
    assert not is_placeholder(identifier)


def test_an_identifier_that_different_devices_have_identifies_none() -> None:
    for first, second in ((BIG, SMALL), (("8", "X", "A"), ("8", "X", "B")), (("8", "X", ""), ("8", "Y", ""))):
        ids = Identities()
        both = ids.assign({"sda": Facts(("naa.5",), "", first), "sdb": Facts(("naa.5",), "", second)})
        assert both == {"sda": "sda", "sdb": "sdb"}
        assert ids.assign({"sdb": Facts(("naa.5",), "", second)}) == {"sdb": "sdb"}


def test_the_next_identifier_counts_where_the_first_is_shared() -> None:
    devices = {
        "sda": Facts(("naa.5", "A"), "", ("8", "X", "A")),
        "sdb": Facts(("naa.5", "B"), "", ("8", "X", "B")),
    }
    assert Identities().assign(devices) == {"sda": "A", "sdb": "B"}


def test_of_two_paths_the_one_that_remains_keeps_its_own() -> None:
    ids = Identities()
    path = Facts(("naa.5",), "", BIG)
    assert ids.assign({"sda": path, "sdb": path}) == {"sda": "naa.5@sda", "sdb": "naa.5@sdb"}
    assert ids.assign({"sdb": path}) == {"sdb": "naa.5@sdb"}
    assert ids.assign({"sdb": path, "sdc": path}) == {"sdb": "naa.5@sdb", "sdc": "naa.5@sdc"}


def test_a_device_that_was_alone_keeps_its_id_when_a_twin_comes() -> None:
    ids = Identities()
    path = Facts(("naa.5",), "", BIG)
    assert ids.assign({"sda": path}) == {"sda": "naa.5"}
    assert ids.assign({"sda": path, "sdb": path}) == {"sda": "naa.5", "sdb": "naa.5@sdb"}
    assert ids.assign({"sdb": path}) == {"sdb": "naa.5@sdb"}


def test_another_device_never_takes_over_the_id_of_one_that_went() -> None:
    ids = Identities()
    assert ids.assign({"sda": Facts(("naa.5",), "", BIG)}) == {"sda": "naa.5"}
    assert ids.assign({}) == {}
    assert ids.assign({"sdb": Facts(("naa.5",), "", SMALL)}) == {"sdb": "sdb"}
    assert Identities().assign({"sda": Facts(("naa.5",), "", BIG)}) == {"sda": "naa.5"}


def test_a_disk_that_comes_back_under_another_name_is_the_same() -> None:
    ids = Identities()
    disk = Facts(("naa.5",), "", BIG)
    assert ids.assign({"sda": disk}) == {"sda": "naa.5"}
    assert ids.assign({}) == {}
    assert ids.assign({"sdx": disk}) == {"sdx": "naa.5"}


def test_a_lun_that_grows_stays_the_same() -> None:
    ids = Identities()
    assert ids.assign({"sda": Facts(("naa.5",), "", ("8", "X", ""))}) == {"sda": "naa.5"}
    assert ids.assign({"sda": Facts(("naa.5",), "", ("16", "X", ""))}) == {"sda": "naa.5"}


def test_devices_that_change_places_take_their_ids_along() -> None:
    ids = Identities()
    a, b = Facts(("naa.a",), "1", BIG), Facts(("naa.b",), "2", BIG)
    assert ids.assign({"sda": a, "sdb": b}) == {"sda": "naa.a", "sdb": "naa.b"}
    assert ids.assign({"sda": b, "sdb": a}) == {"sda": "naa.b", "sdb": "naa.a"}


DEVICES = st.builds(
    Facts,
    st.sampled_from([(), (ZEROS,), ("naa.5",), ("naa.5", "S1"), ("naa.5", "S2"), ("naa.6",), ("sda",)]),
    st.sampled_from(["", "1", "2"]),
    st.sampled_from([BIG, SMALL, ("", "", "")]),
)


@given(st.lists(st.dictionaries(st.sampled_from(["sda", "sdb", "sdc", "sdd"]), DEVICES), max_size=6))
def test_ids_are_unique_and_stay_while_a_device_stays(looks: list[dict[str, Facts]]) -> None:
    ids = Identities()
    before: dict[str, Facts] = {}
    given_before: dict[str, str] = {}
    for devices in looks:
        given = ids.assign(devices)
        assert given.keys() == devices.keys()
        assert len(set(given.values())) == len(given)
        for name, facts in devices.items():
            if before.get(name) == facts:
                assert given[name] == given_before[name]
        before, given_before = devices, given


# -- the collector: counters of devices that change places or are replaced


def line(name: str, count: int) -> str:
    return disk_line(name, *[count] * 11)


def disks_of(**wwids: str) -> dict[str, str]:
    return {f"sys/block/{name}/device/wwid": wwid for name, wwid in wwids.items()}


class Node:
    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, FakeClock()
        around = surroundings(
            now=self.clock.wall_ns,
            monotonic_ns=self.clock.monotonic_ns,
            procfs=root / "proc",
            sysfs=root / "sys",
        )
        self._collector = Diskstats(DiskstatsSettings(), around)

    def read(self, files: dict[str, str], **counts: int) -> dict[str, tuple[int | float | None, bool]]:
        """By ID the requests, and whether the device is another one than before."""
        shutil.rmtree(self.root / "sys", ignore_errors=True)
        lines = "".join(line(name, count) for name, count in counts.items())
        tree(self.root, {**files, "sys/x": "", "proc/diskstats": lines})
        self.clock.sleep(1)
        (reading,) = self._collector.read()
        at = {field.name: place for place, field in enumerate(reading.fields)}
        started = at.get("start_time")
        return {
            component.id: (row[0], started is not None and row[started] is not None)
            for component, row in zip(reading.components, reading.rows, strict=True)
        }


def test_disks_that_exchange_their_names_are_looked_at_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.read(disks_of(sda="naa.a", sdb="naa.b"), sda=100, sdb=9000) == {
        "naa.a": (100, False),
        "naa.b": (9000, False),
    }
    found = node.read(disks_of(sda="naa.b", sdb="naa.a"), sda=9001, sdb=101)
    assert {id_: count for id_, (count, _) in found.items()} == {"naa.a": 101, "naa.b": 9001}


@given(st.permutations([0, 1, 2, 3]), st.lists(st.integers(0, 10**6), min_size=4, max_size=4, unique=True))
def test_any_exchange_of_names(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], counts: list[int]
) -> None:
    node = Node(tmp_path_factory.mktemp("exchange"))
    names = ["sda", "sdb", "sdc", "sdd"]

    def now(places: list[int]) -> dict[str, int | float | None]:
        wwids = disks_of(**{name: f"naa.5{disk}" for name, disk in zip(names, places, strict=True)})
        lines = {name: counts[disk] for name, disk in zip(names, places, strict=True)}
        return {id_: count for id_, (count, _) in node.read(wwids, **lines).items()}

    assert now([0, 1, 2, 3]) == now(order) == {f"naa.5{disk}": counts[disk] for disk in range(4)}


def test_the_interval_in_which_another_device_came_under_an_id_is_marked(tmp_path: Path) -> None:
    node = Node(tmp_path)
    seq = "sys/block/{}/diskseq"
    assert node.read({seq.format("sda"): "1"}, sda=100) == {"sda": (100, False)}
    assert node.read({seq.format("sda"): "1"}, sda=101, sdb=7) == {"sda": (101, False)}
    assert node.read({seq.format("sda"): "9"}, sda=50) == {"sda": (50, True)}, "another disk"
    assert node.read({seq.format("sda"): "9"}, sda=60) == {"sda": (60, True)}


@pytest.mark.parametrize("kind", ["LVM-Zb3", "mpath-3600a0b80"])
def test_a_device_that_was_made_again_is_marked(tmp_path: Path, kind: str) -> None:
    node = Node(tmp_path)
    assert node.read({"sys/block/dm-0/dm/uuid": kind}, **{"dm-0": 100}) == {kind: (100, False)}
    assert node.read({}, sda=1) == {}
    assert node.read({"sys/block/dm-1/dm/uuid": kind}, **{"dm-1": 5000}) == {kind: (5000, True)}


def test_counters_that_fall_all_the_time_cost_a_selection_in_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    looks = 0
    collector = node._collector
    select = collector._select

    def counted(read_at_ns: int) -> bool:
        nonlocal looks
        looks += 1
        return select(read_at_ns)

    monkeypatch.setattr(collector, "_select", counted)
    for count in range(40, 0, -1):
        node.read(disks_of(sda="naa.a"), sda=count)
    assert 3 <= looks <= 6
