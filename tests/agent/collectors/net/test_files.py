from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.interface import Reading
from laggard_agent.collectors.net.collector import Net, NetSettings
from laggard_agent.collectors.net.parse import INTERFACE_FIELDS, TCP_FIELDS, parse_interfaces, parse_pairs
from laggard_agent.sampling.sampler import collect
from laggard_common.errors import CollectError
from tests.support.builders.net import DEV, FILES, SNMP
from tests.support.builders.trees import tree
from tests.support.clock import FakeClock
from tests.support.sampled import surroundings


def net(procfs: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ("lo",)) -> Net:
    return Net(NetSettings(include, exclude), surroundings(lambda: 5, procfs=procfs))


def values(reading: Reading, row: int = 0) -> dict[str, int | float | None]:
    return dict(zip((field.name for field in reading.fields), reading.rows[row], strict=True))


def test_interfaces_by_the_kernels_names() -> None:
    rows = parse_interfaces(DEV.encode())
    assert list(rows) == ["lo", "eth0", "ib0:0"]
    eth0 = dict(zip((field.name for field in INTERFACE_FIELDS), rows["eth0"], strict=True))
    assert eth0["rx_bytes"] == 161469191
    assert (eth0["rx_errs"], eth0["rx_drop"], eth0["rx_multicast"]) == (1, 2, 6)
    assert (eth0["tx_bytes"], eth0["tx_colls"], eth0["tx_compressed"]) == (212262, 10, 12)
    assert rows["ib0:0"][0] == 2**64 - 1


def test_each_source_is_a_reading(tmp_path: Path) -> None:
    interfaces, tcp, softnet = net(tree(tmp_path, FILES)).read()
    assert (interfaces.source, tcp.source, softnet.source) == ("net", "tcp", "softnet")
    assert [component.id for component in interfaces.components] == ["eth0", "ib0:0"]
    found = values(tcp)
    assert (found["RetransSegs"], found["OutSegs"], found["CurrEstab"]) == (17, 1884, 3)
    assert (found["TCPLostRetransmit"], found["TCPTimeouts"], found["ListenDrops"]) == (5, 6, 7)
    assert found["TCPSynRetrans"] is None
    assert len(found) == len(TCP_FIELDS)


def test_what_did_not_change_is_the_same_object(tmp_path: Path) -> None:
    collector = net(tree(tmp_path, FILES))
    before = list(collector.read())
    after = list(collector.read())
    for old, new in zip(before, after, strict=True):
        assert new.components is old.components
        assert all(a is b for a, b in zip(new.rows, old.rows, strict=True))


def test_include_and_exclude(tmp_path: Path) -> None:
    tree(tmp_path, FILES)
    names = [
        [component.name for component in next(net(tmp_path, include, exclude).read()).components]
        for include, exclude in (
            ((), ()),
            (("eth.*",), ()),
            ((), ("ib.*", "lo")),
            (("lo",), ("lo",)),
            ((), ("IB.*", "(?i)LO")),
        )
    ]
    assert names == [["lo", "eth0", "ib0:0"], ["eth0"], ["eth0"], [], ["eth0", "ib0:0"]]


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        ("net/dev", ["tcp", "softnet"]),
        ("net/snmp", ["net", "softnet"]),
        ("net/netstat", ["net", "tcp", "softnet"]),
        ("net/softnet_stat", ["net", "tcp"]),
    ],
)
def test_one_missing_file_leaves_the_other_reading(tmp_path: Path, missing: str, left: list[str]) -> None:
    tree(tmp_path, FILES)
    (tmp_path / missing).unlink()
    collected = collect(net(tmp_path), FakeClock())
    assert [reading.source for reading in collected.readings] == left
    assert collected.health.error == f"{tmp_path}/{missing}: No such file or directory"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("net/dev", "hello\n", "no line has the 16 counters of an interface"),
        ("net/dev", "", "no line has the 16 counters of an interface"),
        ("net/dev", f"{DEV.splitlines()[0]}\neth0: 1 2 3\n", "no line has the 16 counters of an interface"),
        ("net/dev", f"eth0: {'9 ' * 15}{'9' * 5000}\n", "no line has the 16 counters of an interface"),
        ("net/snmp", "", "no Tcp lines"),
        ("net/snmp", f"Tcp: OutSegs\nTcp: {'9' * 5000}\n", "no Tcp lines"),
        ("net/netstat", "", "no TcpExt lines"),
        ("net/snmp", "Tcp: OutSegs\nUdp: 1\n", "no Tcp lines"),
        ("net/softnet_stat", "", "not lines of hexadecimal numbers"),
        ("net/softnet_stat", "0000001g 00000000\n", "not lines of hexadecimal numbers"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, name: str, text: str, reason: str) -> None:
    tree(tmp_path, {**FILES, name: text})
    with pytest.raises(CollectError, match=reason):
        list(net(tmp_path).read())


def test_a_host_without_interfaces_is_no_failure(tmp_path: Path) -> None:
    heads = "".join(DEV.splitlines(keepends=True)[:2])
    interfaces, *_ = net(tree(tmp_path, {**FILES, "net/dev": heads})).read()
    assert interfaces.rows == []


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    parse_interfaces(data)
    parse_pairs(data)
    parse_pairs(b"Tcp: InSegs OutSegs\nTcp: " + data)


def test_truncations() -> None:
    for end in range(len(DEV)):
        assert all(len(row) == 16 for row in parse_interfaces(DEV[:end].encode()).values())
    for end in range(len(SNMP)):
        parse_pairs(SNMP[:end].encode())
