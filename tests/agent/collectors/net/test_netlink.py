"""The part that asks the kernel: what it says when there is none to ask, and when it fails."""

import errno
import logging
import os
from pathlib import Path

import pytest

from laggard_agent.cli import main
from laggard_agent.collectors.net.collector import Net, NetSettings
from laggard_agent.collectors.net.inet_diag import SocketDump, read
from laggard_agent.sampling.sampler import collect
from laggard_common.errors import CollectError
from tests.support.builders.net import FILES, Socket, done
from tests.support.builders.trees import tree
from tests.support.clock import FakeClock
from tests.support.sampled import Sampled, surroundings

OTHERS = ["net", "tcp", "softnet"]


class Kernel:
    """A kernel that answers what it is told to."""

    def __init__(self, *sockets: Socket, end: bytes = b"") -> None:
        self.data = b"".join(each.message() for each in sockets) + (end or done())

    def ask(self, most_sockets: int) -> SocketDump:
        answer = SocketDump([])
        read(self.data, answer, most_sockets)
        return answer


def sampled(procfs: Path, kernel: Kernel, *, own: bool = True) -> Sampled[Net]:
    settings = NetSettings((), (), ("10.0.0.0/8",), 10)
    tree(procfs, FILES)
    ask = kernel.ask if own else None
    return Sampled(lambda now, _: Net(settings, surroundings(now, procfs=procfs), ask))


def test_destinations_are_two_more_readings(tmp_path: Path) -> None:
    net = sampled(tmp_path, Kernel(Socket("10.1.0.7", 1), Socket("192.0.2.1", 2))).sample()
    assert list(net.readings) == [*OTHERS, "tcp_destination", "inet_diag"]
    assert net.ids("tcp_destination") == ["10.1.0.7"]
    assert net.row("inet_diag", "inet_diag") == {
        "available": 1,
        "sockets": 2,
        "destinations": 1,
        "sockets_left_out": 0,
        "whole": 1,
        "not_understood": 0,
    }


def test_without_sockets_only_the_state_is_there(tmp_path: Path) -> None:
    net = sampled(tmp_path, Kernel()).sample()
    assert list(net.readings) == [*OTHERS, "inet_diag"]
    assert net.row("inet_diag", "inet_diag")["available"] == 1


@pytest.mark.parametrize(
    ("own", "number", "said"),
    [(False, 0, "--procfs is not of the kernel that would answer"), (True, errno.ENOENT, "tcp_diag")],
)
def test_none_to_ask_is_a_state_that_is_said_once(
    own: bool, number: int, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = sampled(tmp_path, Kernel(Socket("10.1.0.7", 1), end=done(-number)), own=own)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            net.sample()
    assert net.error == ""
    assert list(net.readings) == [*OTHERS, "inet_diag"]
    row = net.row("inet_diag", "inet_diag")
    assert row.pop("available") == 0
    assert set(row.values()) == {None}
    (record,) = caplog.records
    assert said in record.getMessage()


def test_a_kernel_that_refuses_is_a_failure_of_this_part_alone(tmp_path: Path) -> None:
    net = sampled(tmp_path, Kernel(end=done(-errno.EPERM))).sample()
    assert list(net.readings) == OTHERS
    assert net.error == f"netlink NETLINK_SOCK_DIAG: {os.strerror(errno.EPERM)}"


def test_a_bad_file_leaves_destinations_be(tmp_path: Path) -> None:
    net = sampled(tmp_path, Kernel(Socket("10.1.0.7", 1)))
    (tmp_path / "net/softnet_stat").write_text("hello\n")
    assert list(net.sample().readings) == ["net", "tcp", "tcp_destination", "inet_diag"]
    assert "softnet_stat" in net.error


def test_with_a_foreign_root_the_own_kernel_is_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path / "proc", FILES)
    (tmp_path / "agent.toml").write_text('node = "n"\n[net]\ndestinations = ["0.0.0.0/0", "::/0"]\n')
    options = ["--config", str(tmp_path / "agent.toml"), "--collectors", "net"]
    assert main(["--once", *options, "--procfs", str(tmp_path / "proc")]) == 0
    said = capsys.readouterr().out
    assert '"available": 0' in said
    assert '"tcp_destination"' not in said
    assert main(["--once", *options]) == 0
    assert '"available": 1' in capsys.readouterr().out


@pytest.mark.parametrize("text", ["10.1.0.7/16", "10.1.0.0/33", "server-1", "", "10.1.0.0/16 "])
def test_networks_that_are_none(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f'node = "n"\n[net]\ndestinations = ["{text}"]\n')
    assert main(["--config", str(path), "--check-config"]) == 2
    assert "net.destinations: expected a network such as 10.1.0.0/16" in capsys.readouterr().err


def test_a_file_that_vanishes_or_is_denied_is_one_error(tmp_path: Path) -> None:
    net = Net(NetSettings((), ()), surroundings(procfs=tree(tmp_path, FILES)))
    (tmp_path / "net/snmp").unlink()
    (tmp_path / "net/softnet_stat").unlink()
    (tmp_path / "net/softnet_stat").mkdir()
    collected = collect(net, FakeClock())
    assert [reading.source for reading in collected.readings] == ["net"]
    assert collected.health.error.endswith("net/snmp: No such file or directory (and 1 more)")
    with pytest.raises(CollectError):
        list(net.read())
