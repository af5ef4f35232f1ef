"""Answers of netlink's INET_DIAG: as kernels give them, and as they never do."""

import contextlib
import errno
import random
import socket
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.net.inet_diag import NoSuchDiagnosisError, SocketDump, ask, read, request
from laggard_common.errors import CollectError
from tests.support.builders.net import ERROR, FIXTURES, SOCKET_MESSAGE, Socket, attribute, done, message

ONE = Socket("10.1.0.7", 5, 150, 3, 10_000_000_000, 700, 600, 10_000_900_000, 4344)
SIX = replace(ONE, to="fd00::7", cookie=6)
MOST = 1000
DONE, HEADER_BYTES = 3, 16


def answer_of(data: bytes, most: int = MOST) -> SocketDump:
    answer = SocketDump([])
    read(data, answer, most)
    return answer


def test_values_of_a_socket() -> None:
    answer = answer_of(ONE.message() + SIX.message() + done())
    assert [values for *_, values in answer.sockets] == [
        (150, 3, 10_000_000_000, 700, 600, 10_000_900_000, 4344)
    ] * 2
    assert [family for family, *_ in answer.sockets] == [socket.AF_INET, socket.AF_INET6]
    assert (answer.known, answer.whole, answer.done, answer.not_understood) == (7, True, True, 0)


@pytest.mark.parametrize(
    ("kernel", "info_bytes", "known"),
    [
        ("2.6", 104, 2),
        ("3.15", 120, 2),
        ("4.1", 136, 3),
        ("4.2", 144, 4),
        ("4.6", 160, 5),
        ("4.19", 224, 7),
        ("later", 400, 7),
    ],
)
def test_older_kernels_know_less(kernel: str, info_bytes: int, known: int) -> None:
    answer = answer_of(replace(ONE, info_bytes=info_bytes).message() + done())
    (found,) = answer.sockets
    assert answer.known == known
    assert found[2][:known] == (150, 3, 10_000_000_000, 700, 600, 10_000_900_000, 4344)[:known]


def test_a_value_that_is_cut_is_not_known() -> None:
    assert answer_of(replace(ONE, info_bytes=206).message()).known == 5
    assert answer_of(replace(ONE, info_bytes=125).message()).known == 2


def test_attributes_in_any_order_and_number() -> None:
    before = ((16, b"\6"), (7, bytes(36)), (1, b""), (21, bytes(8)))
    assert answer_of(replace(ONE, before=before).message()).sockets == answer_of(ONE.message()).sockets


@pytest.mark.parametrize("info_bytes", [0, 4, 72, 103])
def test_without_retransmits_it_is_no_socket(info_bytes: int) -> None:
    answer = answer_of(replace(ONE, info_bytes=info_bytes).message() + done())
    assert (answer.sockets, answer.not_understood, answer.whole) == ([], 1, False)


def test_more_sockets_than_there_is_room_for() -> None:
    answer = answer_of(b"".join(replace(ONE, cookie=n).message() for n in range(9)) + done(), most=4)
    assert (len(answer.sockets), answer.whole, answer.done) == (4, False, True)


@pytest.mark.parametrize("kind", [ERROR, 3])
@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOENT, NoSuchDiagnosisError), (errno.EPERM, CollectError), (2**31, CollectError)],
)
def test_errors_of_the_kernel(kind: int, number: int, error: type[CollectError]) -> None:
    with pytest.raises(CollectError) as raised:
        answer_of(message(kind, struct.pack("=i", -number)))
    assert type(raised.value) is error


def test_an_interrupted_dump_is_not_whole() -> None:
    assert not answer_of(ONE.message() + message(3, bytes(4), flags=0x12)).whole


def test_other_messages_are_counted() -> None:
    answer = answer_of(message(4, b"") + message(99, bytes(40)) + ONE.message() + done())
    assert (len(answer.sockets), answer.not_understood, answer.whole) == (1, 2, False)


WHOLE = ONE.message() + SIX.message() + done()


def test_truncated_at_every_byte() -> None:
    for end in range(len(WHOLE)):
        answer = answer_of(WHOLE[:end])
        assert not (answer.done and end < len(WHOLE) - 4)
        assert all(found in answer_of(WHOLE).sockets for found in answer.sockets)


def test_changed_at_every_byte() -> None:
    for at in range(len(WHOLE)):
        for value in {0, 1, 0x7F, 0x80, 0xFF} - {WHOLE[at]}:
            changed = WHOLE[:at] + bytes([value]) + WHOLE[at + 1 :]
            if at == len(WHOLE) - 1 and value >= 0x80:  # what follows DONE became the number of an error
                with pytest.raises(CollectError):
                    answer_of(changed)
                continue
            answer = answer_of(changed)
            assert len(answer.sockets) <= 2
            assert len(answer.sockets) == 2 or not answer.whole


def walked(data: bytes) -> tuple[int, bool, bool]:
    """Number of whole messages in `data`, whether one ends the dump, and whether one is an error."""
    at = count = 0
    done, refused = False, False
    while len(data) - at >= HEADER_BYTES and not refused:
        length, kind = struct.unpack_from("=IH", data, at)
        if not HEADER_BYTES <= length <= len(data) - at:
            break
        if kind in (ERROR, DONE):
            done = True
            refused = length >= HEADER_BYTES + 4 and struct.unpack_from("=i", data, at + HEADER_BYTES)[0] < 0
        at += (length + 3) // 4 * 4
        count += 1
    return count, done, refused


MESSAGE = st.builds(
    lambda kind, body: struct.pack("=IHHII", HEADER_BYTES + len(body), kind, 2, 0, 0) + body,
    st.sampled_from((SOCKET_MESSAGE, ERROR, DONE)) | st.integers(0, 2**16 - 1),
    st.binary(max_size=40).map(lambda body: body[: len(body) // 4 * 4]),
)


@given(st.lists(MESSAGE, max_size=4), st.binary(max_size=400))
def test_arbitrary_bytes(messages: list[bytes], data: bytes) -> None:
    text = b"".join(messages) + data
    count, done, refused = walked(text)
    if refused:
        with pytest.raises(CollectError):
            answer_of(text)
        return
    answer = answer_of(text)
    assert answer.done == done
    assert len(answer.sockets) + answer.not_understood <= count + 1


def test_a_large_answer_in_one_piece() -> None:
    chance = random.Random(1)
    junk = attribute(200, chance.randbytes(60_000))
    answer = answer_of(message(SOCKET_MESSAGE, bytes(72) + junk) * 50 + done())
    assert (answer.sockets, answer.not_understood) == ([], 50)


def test_the_request_is_as_the_kernel_wants_it() -> None:
    """72 bytes: struct nlmsghdr and struct inet_diag_req_v2 of linux/inet_diag.h."""
    text = request(socket.AF_INET6)
    assert len(text) == 72
    assert struct.unpack_from("=IHH", text) == (72, 20, 0x301)
    family, protocol, extensions, _, states = struct.unpack_from("=BBBBI", text, 16)
    assert (family, protocol, extensions) == (socket.AF_INET6, socket.IPPROTO_TCP, 1 << 1)
    assert not states & (1 << 10 | 1 << 6 | 1 << 3)  # LISTEN, TIME_WAIT and SYN_RECV have no struct tcp_info


def test_a_capture() -> None:
    """Two datagrams as Linux 6.18 answered within a namespace: two connections over IPv4, one over IPv6."""
    answer = SocketDump([])
    for name in ("inet", "inet6"):
        answer.done = False
        read((FIXTURES / f"{name}_diag-6.18.bin").read_bytes(), answer, MOST)
        assert answer.done
    assert (answer.known, answer.whole, answer.not_understood) == (7, True, 0)
    assert len(answer.sockets) == 6  # both ends of each
    for _, ends, (rtt, retrans, acked, segs, data_segs, sent, sent_again) in answer.sockets:
        assert len(ends) == 48
        assert 0 < rtt < 1_000_000
        assert retrans == sent_again == 0
        assert segs >= data_segs
        assert acked <= sent + 1  # the SYN is acknowledged as a byte, too


def test_of_more_sockets_the_rest_is_not_asked_for() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        for _ in range(5):
            stack.enter_context(socket.create_connection(server.getsockname()))
            stack.enter_context(server.accept()[0])
        answer = ask(9)
    assert (len(answer.sockets), answer.whole) == (9, False)
    assert not answer.done


def test_this_kernel() -> None:
    """A connection of this process, which only loopback sees: it is found from both ends, and it counts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as near:
            far, _ = server.accept()
            with far:
                near.sendall(bytes(5000))
                assert len(far.recv(5000, socket.MSG_WAITALL)) == 5000
                answer = ask(100_000)
                mine = near.getsockname()[1]
    found = [v for _, ends, v in answer.sockets if struct.unpack_from(">HH", ends) == (mine, port)]
    assert [values[5] for values in found] == [5000]
