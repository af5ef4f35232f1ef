"""The shipped limits in force: who floods the broker is held to the rate, and nobody else notices.

All in network namespaces, with a real mosquitto; the bounds are those of a token bucket, whatever the load.
"""

import itertools
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from laggard_common.errors import ServiceError
from tests.support.hostile_client import connected, field, flood, packet, publication
from tests.support.namespaces import BROKER, BROKER6, LIMITS, Network, Place
from tests.support.ports import is_listening
from tests.support.processes import running
from tests.support.shipped_brokers import program
from tests.support.wait import LIMIT_SECONDS, wait_until

MIB = 2**20
PORT = 1883
RATE, BURST = 1 * MIB, 2 * MIB
TOPIC = "laggard/1/site/storage/evil/data/x"
MESSAGE = publication(TOPIC, bytes(2000))
"""One message of a flood: large enough for even a busy machine to send more than RATE."""

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
_missing = [name for name in ("ip", "nft", "mosquitto") if shutil.which(name, path=_PATH) is None]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.getuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(_missing), reason=f"needs {', '.join(_missing)}"),
]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """The namespaces, with a broker that lets everyone in."""
    made = Network()
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {PORT}\nallow_anonymous true\nmax_queued_messages 0\nuser root\n")
    with ExitStack() as stack:
        try:
            stack.enter_context(made.made())
        except (ServiceError, OSError) as exc:
            pytest.skip(f"no network namespaces: {exc}")
        with made.inside("site"):
            stack.enter_context(running([program("mosquitto"), "-c", str(config)], tmp_path / "log"))
            wait_until(lambda: is_listening(PORT), "the broker to listen")
        yield made


def dropped(network: Network) -> dict[str, int]:
    """Packets by counter."""
    said = json.loads(network.nft("-j", "list", "counters", "table", "inet", "laggard_broker"))["nftables"]
    counters = [each["counter"] for each in said if "counter" in each]
    return {each["name"]: each["packets"] for each in counters}


class Reader:
    """Reads all that comes to the broker, on its own host, and counts the bytes of it."""

    def __init__(self) -> None:
        self.taken = 0
        self._link = connected(PORT, "reader", None, "127.0.0.1")
        self._link.sendall(packet(0x82, b"\x00\x01" + field("laggard/#") + b"\x00"))
        assert self._link.recv(5)[0] == 0x90
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        """Reads no more."""
        self._link.shutdown(socket.SHUT_RDWR)
        self._thread.join(LIMIT_SECONDS)
        self._link.close()

    def _read(self) -> None:
        with suppress(ConnectionResetError):  # by close, as more is on its way
            while data := self._link.recv(MIB):
                self.taken += len(data)


@pytest.mark.parametrize("host", [BROKER, BROKER6])
def test_a_flooder_is_held_to_the_rate_and_another_gets_through(network: Network, host: str) -> None:
    network.limit()
    with network.inside("site"):
        reader = Reader()
    ended, acknowledged = threading.Event(), []

    def honest() -> None:
        with network.inside("nodes"), connected(PORT, "oss-1", None, host) as link:
            for number in range(1, 10_000):
                head = field("laggard/1/site/storage/oss-1/data/x") + number.to_bytes(2)
                link.sendall(packet(0x32, head + bytes(2500)))
                assert link.recv(4)[2:] == number.to_bytes(2)
                acknowledged.append(number)
                if ended.wait(0.05):
                    return

    beside = threading.Thread(target=honest)
    try:
        with network.inside("strangers"):
            link = connected(PORT, "evil", None, host)
        beside.start()
        before, began = reader.taken, time.monotonic()
        with link:
            while not dropped(network)["dropped_packets"]:
                flood(link, itertools.repeat(MESSAGE), 1.0)
                assert time.monotonic() < began + LIMIT_SECONDS, "the flood did not reach the limit"
            at_the_limit = len(acknowledged)
            while len(acknowledged) < at_the_limit + 10:
                flood(link, itertools.repeat(MESSAGE), 1.0)
                assert beside.is_alive()
                assert time.monotonic() < began + LIMIT_SECONDS, "another does not get through"
            ended.set()
            beside.join(LIMIT_SECONDS)
            taken = reader.taken - before
            seconds = time.monotonic() - began
    finally:
        ended.set()
        beside.join(LIMIT_SECONDS)
        reader.close()
    ours = len(acknowledged) * 2600
    assert 0.2 * BURST < taken - ours <= BURST + RATE * seconds
    assert dropped(network)["dropped_connections"] == 0


def test_without_the_limits_much_more_comes_through(network: Network) -> None:
    """So that the test above says something; and removing the table removes all of it."""
    network.limit()
    network.nft("delete", "table", "inet", "laggard_broker")
    with network.inside("site"):
        reader = Reader()
    try:
        with network.inside("strangers"), connected(PORT, "evil", None, BROKER) as link:
            began = time.monotonic()
            while time.monotonic() < began + LIMIT_SECONDS:
                flood(link, itertools.repeat(MESSAGE), 1.0)
                if reader.taken > BURST + RATE * (time.monotonic() - began) + MIB:
                    return
    finally:
        reader.close()
    pytest.fail("a flood without limits is no faster than one with them")


def test_the_host_itself_and_whom_the_site_names_are_not_held(network: Network) -> None:
    network.limit(several4="198.18.2.0/24")
    message = [publication(TOPIC, bytes(60_000))] * 120  # 7 MB, three times what another address may at once
    free: tuple[tuple[Place, str], ...] = (("site", "127.0.0.1"), ("site", BROKER), ("strangers", BROKER))
    for place, host in free:
        with network.inside(place), connected(PORT, "evil", None, host) as link:
            flood(link, iter(message), LIMIT_SECONDS)
            link.sendall(b"\xc0\x00")
            assert link.recv(2) == b"\xd0\x00"  # all before it was taken
    assert set(dropped(network).values()) == {0}
    with network.inside("nodes"), connected(PORT, "evil", None, BROKER) as link:
        flood(link, iter(message[:50]), LIMIT_SECONDS)
        link.sendall(b"\xc0\x00")
        assert link.recv(2) == b"\xd0\x00"  # slower, but all of it
    assert dropped(network)["dropped_packets"] > 0


def test_connections_are_limited_by_address(network: Network) -> None:
    network.limit()
    began = time.monotonic()
    with ExitStack() as stack:
        with network.inside("strangers"):
            links = [stack.enter_context(socket.socket()) for _ in range(100)]
            for link in links:
                link.setblocking(False)
                link.connect_ex((BROKER, PORT))
        with network.inside("nodes"):
            connected(PORT, "oss-1", None, BROKER).close()
        seconds = time.monotonic() - began
        open_now = sum(_is_open(link) for link in links)
    assert 0 < open_now <= 20 + 5 * seconds + 1
    assert dropped(network)["dropped_connections"] >= 100 - 20 - 5 * seconds - 1


def test_when_there_are_more_addresses_than_a_set_holds_new_ones_are_let_through(network: Network) -> None:
    network.nft("-f", "-", rules=LIMITS.read_text().replace("size 65535", "size 1"))
    with ExitStack() as stack:
        with network.inside("nodes"):
            stack.enter_context(connected(PORT, "oss-1", None, BROKER))
        with network.inside("strangers"):
            for _ in range(60):
                stack.enter_context(socket.create_connection((BROKER, PORT), LIMIT_SECONDS))
        assert set(dropped(network).values()) == {0}
        with network.inside("nodes"):  # who is in the set still is limited
            for _ in range(60):
                link = stack.enter_context(socket.socket())
                link.setblocking(False)
                link.connect_ex((BROKER, PORT))
    assert dropped(network)["dropped_connections"] > 0


def _is_open(link: socket.socket) -> bool:
    try:
        link.getpeername()
    except OSError:
        return False
    return True


def test_the_limits_load_twice_and_touch_nothing_else(network: Network) -> None:
    network.nft("-f", "-", rules="table inet other {\n}\n")
    network.limit()
    network.limit()
    assert "table inet other" in network.nft("list", "tables")
    network.nft("-c", "-f", str(LIMITS))
