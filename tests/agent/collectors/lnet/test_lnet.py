"""The collector `lnet` over the kernel's files, whole, cut off, and with content that no kernel writes."""

import errno
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from laggard_agent.collectors import report_file
from laggard_agent.collectors.interface import read_file
from laggard_agent.collectors.lnet import collector
from laggard_agent.collectors.lnet.collector import Lnet, LnetSettings
from laggard_agent.collectors.lnet.parse import NI_FIELDS, PEER_FIELDS, parse_nis, parse_peers, parse_stats
from laggard_agent.collectors.lnet.report import HEALTH_FIELDS, parse_report
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Field
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "lnet"
SERVER, CLIENT = FIXTURES / "server-2.15", FIXTURES / "client-2.12"
REPORT = FIXTURES / "report.yaml"
NI = "10.17.0.21@o2ib"


def sampled(debugfs: Path, procfs: Path | None = None, **settings: Any) -> Sampled[Lnet]:
    chosen, proc = LnetSettings(**settings), procfs or debugfs / "no-proc"
    return Sampled(lambda now, ns: Lnet(chosen, surroundings(now, ns, procfs=proc, debugfs=debugfs)))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A debugfs with the files of a server."""
    shutil.copytree(SERVER, tmp_path / "lnet")
    return tmp_path


def test_a_server_by_hand(server: Path) -> None:
    agent = sampled(server).sample()
    assert agent.error == ""
    assert agent.ids("lnet_ni") == [NI, "10.17.0.22@o2ib", "2001:db8::21@tcp1"]
    assert agent.row("lnet_ni", NI) == {
        "up": 1,
        "refs": 13,
        "peer_credits": 32,
        "router_credits": 0,
        "max_credits": 256,
        "credits": 115,  # 121 of one partition, -6 of the other
        "min_credits": -233,
        "waiting": 6,
    }
    assert agent.row("lnet_ni", "10.17.0.22@o2ib")["up"] == 0
    assert agent.row("lnet_peer", "10.17.4.102@o2ib") == {
        "up": None,
        "refs": 5,
        "max_credits": 32,
        "router_credits": 32,
        "min_router_credits": 32,
        "credits": -3,
        "min_credits": -44,
        "waiting": 3,
        "queued_bytes": 1572864,
    }
    assert agent.row("lnet_peer", "10.17.9.2@o2ib")["up"] == 0
    own = agent.row("lnet", "lnet")
    sums = ("nis", "nis_down", "peers", "peers_down", "peers_waiting", "queued_bytes", "left_out")
    assert [own[name] for name in sums] == [3, 1, 5, 1, 1, 1572864, 0]
    assert (own["drop_count"], own["send_length"]) == (5127, 981234567890123)


def columns(path: Path) -> Iterator[list[str]]:
    """The words of each line below the heading, but those of the loopback."""
    yield from (line.split() for line in path.read_text().splitlines()[1:] if not line.startswith("0@lo"))


@pytest.mark.parametrize("folder", [SERVER, CLIENT])
def test_every_number_is_that_of_its_text(folder: Path) -> None:
    nis: dict[str, dict[str, int]] = {}
    for nid, status, _, refs, peer, router, most, now, least in columns(folder / "nis"):
        sums = dict.fromkeys(("refs", "max_credits", "credits", "waiting"), 0)
        ni = nis.setdefault(nid, sums | {"min_credits": int(least)})
        ni |= {"up": int(status == "up"), "peer_credits": int(peer), "router_credits": int(router)}
        for name, word in (("refs", refs), ("max_credits", most), ("credits", now)):
            ni[name] += int(word)
        ni["min_credits"] = min(ni["min_credits"], int(least))
        ni["waiting"] += max(0, -int(now))
    table = parse_nis((folder / "nis").read_bytes())
    assert named_rows(table.rows, NI_FIELDS) == nis
    peers = {
        nid: {
            "up": {"up": 1, "down": 0, "NA": None}[state],
            "refs": int(refs),
            "max_credits": int(most),
            "router_credits": int(router),
            "min_router_credits": int(least_router),
            "credits": int(now),
            "min_credits": int(least),
            "waiting": max(0, -int(now)),
            "queued_bytes": int(queue),
        }
        for nid, refs, state, _, most, router, least_router, now, least, queue in columns(folder / "peers")
    }
    table = parse_peers((folder / "peers").read_bytes())
    assert named_rows(table.rows, PEER_FIELDS) == peers
    stats = (folder / "stats").read_text().split()
    assert list(parse_stats((folder / "stats").read_bytes()) or ()) == list(map(int, stats))


def named_rows(rows: Mapping[str, Row], fields: Sequence[Field]) -> dict[str, dict[str, object]]:
    """Rows by the names of their fields."""
    return {nid: dict(zip((field.name for field in fields), row, strict=True)) for nid, row in rows.items()}


def test_every_number_of_the_report_is_that_of_a_yaml_parser() -> None:
    document = yaml.safe_load(REPORT.read_text())
    told = {
        "net": [ni for net in document["net"] for ni in net["local NI(s)"] if ni["nid"] != "0@lo"],
        "peer": [ni for peer in document["peer"] for ni in peer["peer ni"]],
    }
    for table, listed in zip(parse_report(REPORT.read_bytes()), told.values(), strict=True):
        wanted = {}
        for ni in listed:
            health, row = ni["health stats"], dict(ni["statistics"])
            row |= {name.replace(" ", "_"): value for name, value in health.items()}
            row["errors"], row["health"] = health["error"], health["health value"]
            row["network_timeouts"] = health.get("network timeout")
            row["timeouts"] = health.get("timeouts", health.get("timeout"))
            row["health_lost"] = 1000 - health["health value"]
            wanted[ni["nid"]] = {field.name: row.get(field.name) for field in HEALTH_FIELDS}
        assert named_rows(table.rows, HEALTH_FIELDS) == wanted
        assert table.odd == []


def test_older_files_below_proc_and_no_files(tmp_path: Path) -> None:
    shutil.copytree(CLIENT, tmp_path / "proc/sys/lnet")
    agent = sampled(tmp_path / "debug", tmp_path / "proc").sample()
    assert agent.ids("lnet_peer") == ["192.168.40.250@tcp", "192.168.40.251@tcp"]
    shutil.rmtree(tmp_path / "proc/sys/lnet")
    agent.sample(10)
    assert (agent.error, list(agent.readings)) == ("", ["lnet"])
    own = agent.row("lnet", "lnet")
    assert (own["nis"], own["drop_count"], own["files_failed"]) == (0, None, 0)


def test_peers_are_read_every_ten_seconds_and_no_more_than_asked(server: Path) -> None:
    agent = sampled(server, max_peers=2).sample()
    assert agent.ids("lnet_peer") == ["10.17.4.101@o2ib", "10.17.4.102@o2ib"]
    assert [agent.row("lnet", "lnet")[name] for name in ("peers", "left_out")] == [5, 3]
    (server / "lnet/peers").write_bytes((CLIENT / "peers").read_bytes())
    assert agent.sample(5).ids("lnet_peer")[0] == "10.17.4.101@o2ib"
    assert agent.sample(5).ids("lnet_peer") == ["192.168.40.250@tcp", "192.168.40.251@tcp"]


def test_a_list_that_starts_over_is_read_again(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale: list[int] = []

    def read(path: Path) -> bytes:
        if path.name == "peers" and len(stale) < 2:
            stale.append(1)
            raise CollectError(str(path), "Stale file handle") from OSError(errno.ESTALE, "stale")
        return read_file(path)

    monkeypatch.setattr(collector, "read_file", read)
    assert len(sampled(server).sample().ids("lnet_peer")) == 5
    assert len(stale) == 2


def test_odd_lines_are_counted_and_cost_no_other(server: Path, caplog: pytest.LogCaptureFixture) -> None:
    nis = server / "lnet/nis"
    text = (
        nis.read_text()
        + "10.1.1.1@o2ib  sideways -1 1 8 0 256 256 241\n\x1b]0;owned\x07@tcp up 0 1 1 1 1 1 1\n"
    )
    nis.write_text(text)
    agent = sampled(server).sample()
    assert len(agent.ids("lnet_ni")) == 3
    assert agent.row("lnet", "lnet")["values_not_understood"] == 2
    assert "2 lines not understood" in caplog.text
    nis.write_text(text.replace("status", "health"))
    agent.sample()
    assert (agent.ids("lnet_ni"), agent.row("lnet", "lnet")["values_not_understood"]) == ([], 1)


@pytest.mark.parametrize("name", ["stats", "nis", "peers"])
def test_cut_off_anywhere(server: Path, name: str) -> None:
    data = (SERVER / name).read_bytes()
    parse = {"stats": parse_stats, "nis": parse_nis, "peers": parse_peers}[name]
    for end in range(len(data)):
        parse(data[:end])
    (server / "lnet" / name).write_bytes(data[:-40])
    agent = sampled(server).sample()
    assert agent.error == ""
    assert agent.row("lnet", "lnet")["values_not_understood"] == 1


def test_credits_at_the_bounds_are_sums_of_64_bits(server: Path) -> None:
    heading = (SERVER / "nis").read_text().splitlines()[0]
    line = "1.2.3.4@tcp up -1 1 8 0 2147483647 -2147483647 -2147483647\n"
    (server / "lnet/nis").write_text(heading + "\n" + line * 4000)
    assert sampled(server).sample().row("lnet_ni", "1.2.3.4@tcp")["credits"] == -2147483647 * 4000


def test_any_bytes_are_lines_or_odd() -> None:
    chance = random.Random(7)
    data = (SERVER / "nis").read_bytes()
    for _ in range(2000):
        spoilt = bytearray(data)
        for _ in range(chance.randint(1, 12)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        for parse in (parse_nis, parse_peers, parse_stats):
            parse(bytes(spoilt))


def test_health_of_the_report_by_hand(server: Path) -> None:
    report = server / "report.yaml"
    shutil.copy(REPORT, report)
    agent = sampled(server, report=report)
    os.utime(report, ns=(0, agent.clock.wall_ns()))
    agent.sample()
    assert agent.error == ""
    assert agent.ids("lnet_ni_health") == [NI, "2001:db8::21@tcp1"]
    assert agent.row("lnet_ni_health", NI) == {
        "send_count": 912345,
        "recv_count": 912001,
        "drop_count": 17,  # of all kinds, not of puts alone
        "interrupts": 1,
        "dropped": 2,
        "aborted": 3,
        "no_route": 4,
        "timeouts": 5,
        "errors": 6,
        "network_timeouts": None,
        "health": 820,
        "health_lost": 180,
    }
    assert agent.ids("lnet_peer_health") == ["10.17.9.1@o2ib", "10.17.9.2@o2ib"]
    peer = agent.row("lnet_peer_health", "10.17.9.1@o2ib")
    assert [peer[name] for name in ("timeouts", "errors", "network_timeouts", "health")] == [12, 13, 14, 990]
    assert agent.row("lnet", "lnet")["report_age"] == 1


def test_a_report_that_is_old_missing_or_replaced(server: Path) -> None:
    report = server / "report.yaml"
    agent = sampled(server, report=report).sample()
    assert agent.error == ""
    assert agent.row("lnet", "lnet")["report_age"] is None
    report.write_bytes(REPORT.read_bytes())
    os.utime(report, ns=(0, agent.clock.wall_ns()))
    assert agent.sample().ids("lnet_ni_health") == [NI, "2001:db8::21@tcp1"]
    assert agent.sample(report_file.MOST_SECONDS).ids("lnet_ni_health") == []
    assert agent.ids("lnet_ni") != []
    new = server / "new"
    new.write_bytes(REPORT.read_bytes().replace(b"value: 820", b"value: 1000"))
    os.utime(new, ns=(0, agent.clock.wall_ns()))
    new.rename(report)
    assert agent.sample().row("lnet_ni_health", NI)["health_lost"] == 0
    report.unlink()
    os.mkfifo(report)
    assert "not a regular file" in agent.sample().error


def test_reports_that_no_lnetctl_prints() -> None:
    data = REPORT.read_bytes()
    whole = parse_report(data)
    for end in range(0, len(data), 7):
        for table, all_of_it in zip(parse_report(data[:end]), whole, strict=True):
            assert list(table.rows) == list(all_of_it.rows)[: len(table.rows)]
    chance = random.Random(3)
    for _ in range(500):
        spoilt = bytearray(data)
        for _ in range(chance.randint(1, 20)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        parse_report(bytes(spoilt))
    odd = data.replace(b"10.17.0.21@o2ib", b"\x1b[31m").replace(b"send_count: 7", b"send_count: 7x")
    nis, _ = parse_report(odd)
    assert [len(nis.odd), list(nis.rows)] == [1, ["2001:db8::21@tcp1"]]
    assert nis.rows["2001:db8::21@tcp1"][0] is None
    nis, _ = parse_report(data.replace(b"health value: 820", b"health value: 1001"))
    assert nis.rows[NI][-2:] == (None, None)
