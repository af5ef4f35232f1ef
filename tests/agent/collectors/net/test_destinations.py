"""TCP by remote address: counters that last while sockets come and go."""

import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.net import destinations
from laggard_agent.collectors.net.destinations import DESTINATION_FIELDS, Destinations, destination_name
from laggard_agent.collectors.net.inet_diag import SocketDump, read
from tests.support.builders.net import Socket, done

ALL = ("0.0.0.0/0", "::/0")
A, B = "10.1.0.1", "10.1.0.2"
SECOND = 10**9


class Node:
    """A node whose sockets are told, second by second."""

    def __init__(self, networks: tuple[str, ...] = ALL, most: int = 100) -> None:
        self.found = Destinations(networks, most)
        self.now_ns = 10**18

    def sample(self, *sockets: Socket, whole: bool = True, seconds: int = 1) -> "Node":
        """A sample that sees these sockets."""
        self.now_ns += seconds * SECOND
        answer = SocketDump([])
        read(b"".join(each.message() for each in sockets) + done(), answer, 1000)
        answer.whole = whole
        self.rows = self.found.update(answer, self.now_ns)
        return self

    def row(self, name: str) -> dict[str, int | float | None]:
        at = [component.id for component in self.found.components].index(name)
        return dict(zip((field.name for field in DESTINATION_FIELDS), self.rows[at], strict=True))

    def retrans(self, name: str = A) -> int | float | None:
        return self.row(name)["total_retrans"]

    def names(self) -> list[str]:
        return [component.id for component in self.found.components]


def made(to: str = A, cookie: int = 1, retrans: int = 0) -> Socket:
    return Socket(to, cookie, total_retrans=retrans)


def test_sums_by_address() -> None:
    node = Node().sample()
    node.sample(
        Socket(A, 1, 100, 1, 10, 20, 30, 40, 50),
        Socket(A, 2, 301, 2, 100, 200, 300, 400, 500, port=989),
        Socket(B, 3, 0, 7),
    )
    assert node.row(A) == {
        "sockets": 2,
        "rtt": 200,
        "total_retrans": 3,
        "bytes_acked": 110,
        "segs_out": 220,
        "data_segs_out": 330,
        "bytes_sent": 440,
        "bytes_retrans": 550,
    }
    assert (node.row(B)["rtt"], node.retrans(B)) == (None, 7)


def test_what_was_counted_before_the_first_sample_is_not_counted() -> None:
    assert Node().sample(made(retrans=50)).retrans() == 0
    assert Node().sample(made(retrans=50)).sample(made(retrans=53)).retrans() == 3


def test_a_socket_that_goes_takes_nothing_away() -> None:
    node = Node().sample().sample(made(retrans=5), made(cookie=2, retrans=6))
    assert node.sample(made(cookie=2, retrans=8)).retrans() == 13
    assert node.sample().retrans() == 13
    assert node.row(A)["sockets"] == 0
    assert node.sample(made(cookie=3, retrans=1)).retrans() == 14


def test_a_cookie_used_again_is_another_socket() -> None:
    """Before Linux 4.11 the cookie is an address in memory."""
    node = Node().sample().sample(made(retrans=5))
    assert node.sample(replace(made(retrans=2), port=2049)).retrans() == 7
    assert node.sample(made(retrans=1)).retrans() == 8


def test_counters_of_32_bits_wrap() -> None:
    node = Node().sample(replace(made(), segs_out=2**32 - 3))
    assert node.sample(replace(made(), segs_out=4)).row(A)["segs_out"] == 7


def test_after_a_sample_that_was_not_whole_nothing_is_counted_twice() -> None:
    node = Node().sample().sample(made(retrans=5), made(cookie=2, retrans=1))
    node.sample(made(retrans=6), whole=False)
    assert node.retrans() == 7
    # 2 was missed and goes on; 9 may have been missed before, and what it had counted then is unknown.
    node.sample(made(retrans=6), made(cookie=2, retrans=4), made(cookie=9, retrans=100))
    assert node.retrans() == 10
    assert node.sample(made(cookie=9, retrans=101)).retrans() == 11


def test_no_more_destinations_than_asked_for() -> None:
    node = Node(most=2).sample(made(A), made(B, 2), made("10.1.0.3", 3, 70), made("10.1.0.3", 4))
    assert node.names() == [A, B]
    assert node.found.sockets_left_out == 2
    # A place gets free: the one that had none counts from here on.
    node.sample(made(A), made("10.1.0.3", 3, 70))
    assert node.found.sockets_left_out == 1
    node.sample(made(A), made("10.1.0.3", 3, 70))
    assert (node.names(), node.found.sockets_left_out) == ([A, "10.1.0.3"], 0)
    assert node.retrans("10.1.0.3") == 0
    assert node.sample(made(A), made("10.1.0.3", 3, 75)).retrans("10.1.0.3") == 5


def test_a_destination_without_sockets_is_forgotten_after_an_hour() -> None:
    node = Node().sample().sample(made(), made(B, 2))
    assert node.sample(made(B, 2), seconds=3600).names() == [A, B]
    assert node.sample(made(B, 2), seconds=3601).names() == [B]


def test_what_the_kernel_does_not_know_is_absent() -> None:
    row = Node().sample(replace(made(), info_bytes=144)).row(A)
    assert [name for name, value in row.items() if value is None] == [
        *("data_segs_out", "bytes_sent", "bytes_retrans")
    ]


@pytest.mark.parametrize(
    ("address", "networks", "name"),
    [
        ("10.1.0.7", ALL, "10.1.0.7"),
        ("fd00::0:7", ALL, "fd00::7"),
        ("::ffff:10.1.0.7", ALL, "10.1.0.7"),
        ("::ffff:10.1.0.7", ("10.1.0.0/16",), "10.1.0.7"),
        ("10.2.0.7", ("10.1.0.0/16", "10.2.0.7"), "10.2.0.7"),
        ("10.3.0.7", ("10.1.0.0/16", "10.2.0.7", "::/0"), ""),
        ("127.0.0.5", ALL, ""),
        ("::1", ALL, ""),
        ("::ffff:127.0.0.1", ALL, ""),
        ("::", ALL, ""),
        ("0.0.0.0", ALL, ""),
    ],
)
def test_which_addresses_are_destinations(address: str, networks: tuple[str, ...], name: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address).ljust(16, b"\0")
    assert destination_name(family, raw, Destinations(networks, 1).networks) == name
    assert destination_name(socket.AF_UNIX, raw, Destinations(networks, 1).networks) == ""


VALUE = st.integers(0, 2**64 - 1)
SOCKETS = st.lists(
    st.builds(
        lambda to, cookie, retrans, sent: Socket(to, cookie, total_retrans=retrans, bytes_sent=sent),
        st.sampled_from([A, B, "fd00::1", "10.1.0.3"]),
        st.integers(1, 6),
        st.integers(0, 2**32 - 1),
        VALUE,
    ),
    max_size=6,
    unique_by=lambda each: (each.to, each.cookie),
)


@given(st.lists(st.tuples(SOCKETS, st.booleans()), max_size=8))
def test_whatever_sockets_do_counters_fit_and_rows_belong(samples: list[tuple[list[Socket], bool]]) -> None:
    node = Node(most=3)
    for sockets, whole in samples:
        node.sample(*sockets, whole=whole)
        assert len(node.rows) == len(node.found.components) == len(set(node.names())) <= 3
        assert all(value is None or 0 <= value < 2**64 for row in node.rows for value in row)
        counted = sum(int(node.row(name)["sockets"] or 0) for name in node.names())
        assert counted + node.found.sockets_left_out == len(sockets)


@given(st.lists(st.lists(st.integers(0, 500), min_size=3, max_size=3), min_size=1, max_size=10))
def test_counters_are_what_sockets_rose_by(samples: list[list[int]]) -> None:
    """Three sockets that go on: the naive sum of their rises."""
    node = Node().sample()
    totals = [0, 0, 0]
    for rises in samples:
        totals = [total + risen for total, risen in zip(totals, rises, strict=True)]
        node.sample(*(made(cookie=at, retrans=total) for at, total in enumerate(totals)))
        assert node.retrans() == sum(totals)


def test_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "MOST_SOCKETS", 50)
    node = Node()
    for n in range(40):
        node.sample(*(made(cookie=100 * n + at) for at in range(20)), whole=False)
        assert len(node.found.sockets) <= 70
