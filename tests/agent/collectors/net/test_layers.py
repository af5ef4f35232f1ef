"""Bonds, VLANs, bridges, macvlans, teams and tunnels beside the interfaces that they are made of."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.interface import choice
from laggard_agent.collectors.net.collector import Net, NetSettings
from laggard_agent.collectors.net.layers import Interfaces
from tests.support.builders.net import FILES
from tests.support.builders.trees import tree
from tests.support.clock import FakeClock
from tests.support.processes import run_command
from tests.support.sampled import surroundings


def sysfs(root: Path, layers: Mapping[str, list[str]], hardware: str, *, links: str = "lower upper") -> Path:
    """/sys/class/net: `layers` has the interfaces directly below each; `links`: the kinds that there are."""
    names = set(layers) | {lower for below in layers.values() for lower in below} | set(hardware.split())
    for name in names:
        folder = root / "class/net" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "type").write_text("1\n")
        if name in hardware.split():
            (folder / "device").mkdir()
    for name, below in layers.items():
        for lower in below:
            if "lower" in links:
                (root / "class/net" / name / f"lower_{lower}").symlink_to(f"../{lower}")
            if "upper" in links:
                (root / "class/net" / lower / f"upper_{name}").symlink_to(f"../{name}")
            if "master" in links:
                (root / "class/net" / lower / "master").symlink_to(f"../{name}")
    return root


def counted(
    root: Path, *names: str, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> set[str]:
    return set(Interfaces(root, choice(include, exclude)).counted(names))


CASES = {
    "bond": ({"bond0": ["eth0", "eth1"]}, "eth0 eth1"),
    "team": ({"team0": ["eth0", "eth1"]}, "eth0 eth1"),
    "bridge": ({"br0": ["eth0"]}, "eth0"),
    "VLAN": ({"eth0.100": ["eth0"]}, "eth0"),
    "macvlan": ({"mv0": ["eth0"], "mv1": ["eth0"]}, "eth0"),
    "VLAN on a bond on a bridge": (
        {"br0": ["bond0.7"], "bond0.7": ["bond0"], "bond0": ["eth0", "eth1"]},
        "eth0 eth1",
    ),
    "bridge of a bond and a VLAN": (
        {"br0": ["bond0", "eth2.3"], "bond0": ["eth0", "eth1"], "eth2.3": ["eth2"]},
        "eth0 eth1 eth2",
    ),
}


@pytest.mark.parametrize("links", ["lower", "upper", "lower upper"])
@pytest.mark.parametrize("case", CASES)
def test_the_hardware_below_counts(case: str, links: str, tmp_path: Path) -> None:
    layers, hardware = CASES[case]
    root = sysfs(tmp_path, layers, hardware, links=links)
    assert counted(root, *layers, *hardware.split()) == set(hardware.split())


def test_a_master_alone_is_enough(tmp_path: Path) -> None:
    root = sysfs(tmp_path, {"bond0": ["eth0", "eth1"]}, "eth0 eth1", links="master")
    assert counted(root, "bond0", "eth0", "eth1") == {"eth0", "eth1"}


def test_what_no_interface_below_counts_counts_itself(tmp_path: Path) -> None:
    root = sysfs(tmp_path, {"bond0": ["eth0"], "bond0.7": ["bond0"], "br0": ["tap0"]}, "eth0")
    found = counted(root, "bond0", "bond0.7", "eth0", "br0", "tap0", exclude=("eth.*", "tap.*"))
    assert found == {"bond0", "br0"}


def test_an_interface_that_is_included_counts(tmp_path: Path) -> None:
    root = sysfs(tmp_path, {"bond0": ["eth0"]}, "eth0")
    assert counted(root, "bond0", "eth0", include=("bond0",)) == {"bond0"}
    assert counted(root, "bond0", "eth0", include=(".*",)) == {"bond0", "eth0"}


def test_the_pair_of_a_virtual_machine_counts_by_its_master(tmp_path: Path) -> None:
    """netvsc and net_failover: the master is hardware and counts the packets of its virtual function, too."""
    root = sysfs(tmp_path, {"eth0": ["enP1"]}, "eth0 enP1", links="lower upper master")
    assert counted(root, "eth0", "enP1") == {"eth0"}


def test_tunnels_beside_hardware_are_left_out(tmp_path: Path) -> None:
    root = sysfs(tmp_path, {"wg0": [], "vx0": [], "gre1": [], "tun0": [], "ipogif0": []}, "eth0")
    (root / "class/net/wg0/uevent").write_text("DEVTYPE=wireguard\nINTERFACE=wg0\n")
    (root / "class/net/vx0/uevent").write_text("DEVTYPE=vxlan\n")
    (root / "class/net/gre1/type").write_text("778\n")
    (root / "class/net/tun0/tun_flags").write_text("0x1001\n")
    names = ("wg0", "vx0", "gre1", "tun0", "ipogif0")
    assert counted(root, *names, "eth0") == {"eth0", "ipogif0"}
    assert counted(root, *names) == set(names), "in a container"


def test_bridges_of_open_vswitch_do_not_count_what_their_hardware_counts(tmp_path: Path) -> None:
    root = sysfs(
        tmp_path, {"ovs-system": ["eth0"], "br-ex": [], "br0": []}, "eth0 eth1", links="lower master"
    )
    assert counted(root, "ovs-system", "br-ex", "br0", "eth0", "eth1") == {"eth0", "eth1"}
    assert counted(root, "ovs-system", "br0", "eth0", include=("br0",)) == {"br0"}


def test_what_lies_between_may_be_excluded(tmp_path: Path) -> None:
    root = sysfs(tmp_path, {"bond0.100": ["bond0"], "bond0": ["eth0"], "eth0": []}, "eth0")
    assert counted(root, "bond0.100", "bond0", "eth0", exclude=("bond0",)) == {"eth0"}


def test_without_sysfs_all_count(tmp_path: Path) -> None:
    assert set(Interfaces(None, choice((), ("lo",))).counted(("lo", "bond0", "eth0"))) == {"bond0", "eth0"}
    assert counted(tmp_path, "bond0", "eth0") == {"bond0", "eth0"}


@given(
    st.lists(st.sets(st.integers(0, 6), max_size=3), min_size=1, max_size=7),
    st.sets(st.integers(0, 6)),
    st.sets(st.integers(0, 6)),
)
def test_nothing_counts_beside_what_it_is_made_of(
    tmp_path_factory: pytest.TempPathFactory, below: list[set[int]], real: set[int], excluded: set[int]
) -> None:
    """Layers of any shape: interface i may be made of interfaces of lower numbers."""
    layers = {f"i{at}": [f"i{lower}" for lower in sorted(low) if lower < at] for at, low in enumerate(below)}
    hardware = {f"i{at}" for at in real if at < len(below) and not layers[f"i{at}"]}
    root = sysfs(tmp_path_factory.mktemp("net"), layers, " ".join(hardware))
    exclude = tuple(f"i{at}" for at in excluded)
    found = counted(root, *layers, exclude=exclude)

    def all_below(name: str) -> set[str]:
        return {each for lower in layers[name] for each in {lower, *all_below(lower)}}

    for name in layers:
        if name in found:
            assert not found & all_below(name), f"{name} is counted twice"
        elif name not in exclude:
            assert found & all_below(name), f"{name} is not counted"
    assert hardware - set(exclude) <= found


def test_a_bond_that_is_made_late_is_seen_within_ten_seconds(tmp_path: Path) -> None:
    line = " 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
    dev = "Inter-| \n face |\n" + "".join(f"{name}:{line}" for name in ("eth0", "bond0"))
    tree(tmp_path / "proc", {**FILES, "net/dev": dev})
    root = sysfs(tmp_path / "sys", {"bond0": []}, "eth0")
    clock = FakeClock()
    around = surroundings(monotonic_ns=clock.monotonic_ns, procfs=tmp_path / "proc", sysfs=root)
    collector = Net(NetSettings(), around)

    def names() -> list[str]:
        return [component.name for component in next(collector.read()).components]

    assert names() == ["eth0", "bond0"]
    (root / "class/net/bond0/lower_eth0").symlink_to("../eth0")
    clock.sleep(10)
    assert names() == ["eth0"]


def test_odd_lines_cost_no_other_and_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = "  eth0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
    softnet = "00000001 00000000 00000000\n0000000x\n"
    snmp = "# odd\n" + FILES["net/snmp"]
    files = {**FILES, "net/dev": f"Inter-| \n face |\n{good}eth1: 5 6", "net/softnet_stat": softnet}
    collector = Net(
        NetSettings(), surroundings(procfs=tree(tmp_path, {**files, "net/snmp": snmp}), sysfs=None)
    )
    for _ in range(2):
        interfaces, tcp, packets = collector.read()
        assert [component.name for component in interfaces.components] == ["eth0"]
        assert tcp.rows[0][2] is not None
        assert packets.rows == [(1, 0, 0, None, None)]
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        f"{tmp_path}/net/dev: 1 lines not understood, the first: 'eth1: 5 6'",
        f"{tmp_path}/net/softnet_stat: 1 lines not understood, the first: '0000000x'",
    ]


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace of the kernel."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    name = f"laggard-layers-{os.getpid()}"
    run_command(["ip", "netns", "add", name])
    try:
        yield name
    finally:
        run_command(["ip", "netns", "del", name])


@pytest.mark.parametrize("kind", ["bridge", "bond", "team", "vlan", "macvlan"])
def test_layers_of_this_kernel(namespace: str, kind: str) -> None:
    def ip(*words: str) -> None:
        run_command(["ip", "-n", namespace, *words])

    ip("link", "add", "port0", "type", "veth", "peer", "name", "port1")
    try:
        if kind in ("vlan", "macvlan"):
            extra = ("id", "5") if kind == "vlan" else ()
            ip("link", "add", "link", "port0", "name", "top0", "type", kind, *extra)
        else:
            ip("link", "add", "top0", "type", kind)
            ip("link", "set", "port0", "master", "top0")
    except AssertionError:
        pytest.skip(f"this kernel has no {kind}")
    code = (
        "from pathlib import Path; from laggard_agent.collectors.net.layers import Interfaces\n"
        "names = [path.name for path in Path('/sys/class/net').iterdir() if path.name != 'lo']\n"
        "print(*sorted(Interfaces(Path('/sys'), lambda name: None).counted(names)))"
    )
    found = run_command(["ip", "netns", "exec", namespace, sys.executable, "-c", code])
    assert found.stdout.split() == ["port0", "port1"]
