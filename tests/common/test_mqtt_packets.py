"""Packets: the standard's own examples, whatever pieces they come in, and whatever else may come."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_common import mqtt_packets as packets
from laggard_common.errors import WireError
from laggard_common.mqtt_packets import Message, Packet, PacketReader, PacketType, Will

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
NUMBERS = st.integers(1, packets.MAX_NUMBER)


def one(data: bytes) -> Packet:
    (packet,) = PacketReader(1 << 20).feed(data)
    return packet


def test_connect_as_the_standard_shows_it() -> None:
    hello = packets.encode_connect("c", keepalive_seconds=10, clean_session=True, username="u", password="p")
    variable = bytes.fromhex("0004 4d515454 04 c2 000a")  # figure 3.6, without will and its retain flag
    assert hello == b"\x10" + bytes((len(variable) + 9,)) + variable + b"\0\x01c\0\x01u\0\x01p"


def test_a_will_is_retained_and_of_qos_1() -> None:
    hello = packets.encode_connect("c", keepalive_seconds=0, clean_session=False, will=Will("t", b"gone"))
    assert hello[9] == 4 | 8 | 32
    assert hello.endswith(b"\0\x01c\0\x01t\0\x04gone")


def test_subscribe_as_the_standard_shows_it() -> None:
    assert packets.encode_subscribe(10, ["a/b", "c/d"]) == bytes.fromhex(  # figures 3.20 to 3.24, both QoS 1
        "82 0e 000a 0003 612f62 01 0003 632f64 01"
    )


@pytest.mark.parametrize(
    ("length", "encoded"),  # table 2.4
    [(127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001"), (2_097_152, "80808001")],
)
def test_lengths_as_the_standard_shows_them(length: int, encoded: str) -> None:
    packet = packets.encode_publish("t", bytes(length - 3))
    assert packet[1:].startswith(bytes.fromhex(encoded))
    (read,) = PacketReader(length).feed(packet)
    assert len(read.body) == length
    with pytest.raises(WireError, match=f"packet of {length} bytes"):
        PacketReader(length - 1).feed(packet)


def test_what_is_too_long_to_be_a_text_is_not_sent() -> None:
    with pytest.raises(WireError, match="too long"):
        packets.encode_publish("t" * 65_536, b"")


@given(TEXTS, st.binary(max_size=300), st.just(0) | NUMBERS, st.booleans(), st.booleans())
def test_a_message_comes_out_as_it_went_in(
    topic: str, payload: bytes, number: int, retain: bool, duplicate: bool
) -> None:
    kind, flags, body = one(
        packets.encode_publish(topic, payload, number, retain=retain, duplicate=duplicate)
    )
    assert kind == PacketType.PUBLISH
    assert packets.decode_publish(flags, body) == Message(topic, payload, number, retain, duplicate)


@given(st.lists(st.binary(max_size=200), min_size=1), st.lists(st.integers(0, 300), max_size=30))
def test_packets_are_the_same_whatever_pieces_they_come_in(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(packets.encode_publish("t", payload, 7) for payload in payloads)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = PacketReader(1024)
    got = [packet for low, high in pairwise(bounds) for packet in reader.feed(stream[low:high])]
    assert [packets.decode_publish(p.flags, p.body).payload for p in got] == payloads
    bytewise = PacketReader(1024)
    assert [p for byte in stream for p in bytewise.feed(bytes((byte,)))] == got


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_arbitrary_bytes_are_packets_or_an_error_and_never_kept_beyond_the_bound(pieces: list[bytes]) -> None:
    reader = PacketReader(256)
    decoders = {
        PacketType.CONNACK: packets.decode_connack,
        PacketType.PUBACK: packets.decode_puback,
        PacketType.SUBACK: packets.decode_suback,
    }
    try:
        for piece in pieces:
            for kind, flags, body in reader.feed(piece):
                assert len(body) <= 256
                if kind == PacketType.PUBLISH:
                    packets.decode_publish(flags, body)
                elif kind in decoders:
                    decoders[PacketType(kind)](body)
            assert len(reader._buffer) <= 5 + 256
    except WireError:
        pass


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        (2, b""),
        (2, b"\0"),
        (2, b"\0\x05abc"),
        (2, b"\0\x01t"),  # no number
        (2, b"\0\x01t\0\0"),  # the number that none may have
        (0, b"\0\x02\xff\xfe"),  # not UTF-8
        (4, b"\0\x01t\0\x01"),  # QoS 2
        (6, b"\0\x01t\0\x01"),
    ],
)
def test_no_message(flags: int, body: bytes) -> None:
    with pytest.raises(WireError):
        packets.decode_publish(flags, body)


def test_answers_that_are_too_short_or_too_long() -> None:
    for decode in (packets.decode_connack, packets.decode_puback):
        for length in (0, 1, 3):
            with pytest.raises(WireError):
                decode(bytes(length))
    with pytest.raises(WireError):
        packets.decode_suback(b"\0\x01")
    with pytest.raises(WireError, match="four bytes"):
        PacketReader(10).feed(b"\x30\xff\xff\xff\xff\x01")


@pytest.mark.parametrize(
    ("code", "said"), [(0, ""), (4, "bad user name or password"), (5, "not authorized"), (99, "code 99")]
)
def test_why_the_broker_refuses(code: int, said: str) -> None:
    assert packets.decode_connack(bytes((0, code))) == said
