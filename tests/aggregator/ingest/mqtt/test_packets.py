"""MQTT's bytes, in whatever pieces they come, from whoever sends them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.ingest.mqtt import packets
from laggard_aggregator.ingest.mqtt.packets import MAX_CONTROL_BYTES, Message, PacketParser
from laggard_common.errors import MqttError
from laggard_common.wire.limits import MAX_MESSAGE_BYTES

TOPIC = "laggard/1/site/storage/oss-1/data/diskstats"

levels = st.text(min_size=1, max_size=20).filter(lambda text: "\x00" not in text)
messages = st.tuples(levels, st.binary(max_size=300), st.integers(0, 65_535))


def naive_packet(first: int, body: bytes) -> bytes:
    """Section 2.2.3, literally."""
    x, out = len(body), bytes((first,))
    while True:
        encoded = x % 128
        x //= 128
        if x > 0:
            encoded |= 128
        out += bytes((encoded,))
        if x <= 0:
            return out + body


def published(topic: str, payload: bytes, number: int) -> bytes:
    """What a broker sends; number 0 for QoS 0."""
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + (number.to_bytes(2, "big") if number else b"") + payload
    return naive_packet(0x32 if number else 0x30, body)


def fed(data: bytes, cuts: Sequence[int]) -> tuple[list[Message], PacketParser]:
    """What comes of bytes that are cut at these places."""
    incoming, came, at = PacketParser(), [], 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        came += incoming.feed(data[at:cut])
        at = cut
    return came, incoming


@given(st.lists(messages, max_size=20), st.lists(st.integers(0, 2**20), max_size=10))
def test_messages_come_whole_in_whatever_pieces(sent: list[Message], cuts: list[int]) -> None:
    came, _ = fed(b"".join(published(*message) for message in sent), cuts)
    assert came == sent


@given(st.binary(max_size=500), st.lists(st.integers(0, 2**20), max_size=5))
def test_any_bytes_are_messages_or_an_error(data: bytes, cuts: list[int]) -> None:
    try:
        came, _ = fed(data, cuts)
    except MqttError:
        return
    assert sum(len(payload) for _, payload, _ in came) <= len(data)


@given(st.binary(max_size=200), st.integers(0, 2**20))
def test_pieces_make_no_difference_to_what_is_wrong(data: bytes, cut: int) -> None:
    def outcome(cuts: Sequence[int]) -> object:
        try:
            came, incoming = fed(data, cuts)
        except MqttError:
            return "error"
        return came, incoming.control, incoming.published

    whole, cut_up = outcome(()), outcome((cut,))
    assert whole == cut_up


def test_other_packets_are_told_apart() -> None:
    data = b"\x20\x02\x00\x00" + b"\x40\x02\x01\x02" + b"\xd0\x00" + b"\x90\x03\x00\x01\x80"
    came, incoming = fed(data, range(len(data)))
    assert came == []
    assert incoming.published == [0x0102]
    assert incoming.control == [
        (packets.CONNACK, b"\x00\x00"),
        (packets.PINGRESP, b""),
        (packets.SUBACK, b"\x00\x01\x80"),
    ]


@pytest.mark.parametrize("piece", [1000, 65_536, 10**9])
def test_a_message_that_is_too_long_is_passed_over_and_handed_on_empty(piece: int) -> None:
    long = published(TOPIC, bytes(MAX_MESSAGE_BYTES + 70_000), 7)
    data = published("a", b"1", 1) + long + published("b", b"2", 8)
    incoming, came = PacketParser(), []
    for at in range(0, len(data), piece):
        came += incoming.feed(data[at : at + piece])
        assert sum(map(len, incoming._pieces)) <= piece + 70_000
    assert came == [("a", b"1", 1), (TOPIC, b"", 7), ("b", b"2", 8)]


def test_the_longest_message_that_counts_is_taken() -> None:
    payload = bytes(range(256)) * (MAX_MESSAGE_BYTES // 256)
    data = published(TOPIC, payload, 9)
    came, _ = fed(data, range(0, len(data), 262_144))
    assert came == [(TOPIC, payload, 9)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x01\x00",  # no topic
        b"\x30\x02\x00\x01",  # a topic longer than the packet
        b"\x32\x03\x00\x01a",  # no number
        b"\x34\x06\x00\x01a\x00\x01x",  # QoS 2, which we did not ask for
        b"\x36\x06\x00\x01a\x00\x01x",  # QoS 3
        b"\x30\xff\xff\xff\xff\x01",  # a length of five bytes
        naive_packet(0x90, bytes(MAX_CONTROL_BYTES + 1)),
    ],
)
def test_what_is_not_mqtt_is_an_error(data: bytes) -> None:
    with pytest.raises(MqttError):
        PacketParser().feed(data)


def test_a_topic_that_is_not_utf8_is_handed_on() -> None:
    """Nobody takes it then, and it is acknowledged, so that it does not come again for ever."""
    came = PacketParser().feed(b"\x32\x06\x00\x02\xff\xfe\x00\x05")
    assert came == [("��", b"", 5)]


@given(messages.filter(lambda message: message[2] > 0))
def test_what_we_publish_reads_as_what_a_broker_sends(message: Message) -> None:
    topic, payload, number = message
    assert packets.publish(topic, payload, number) == published(topic, payload, number)


def test_the_other_packets_are_as_the_standard_shows_them() -> None:
    assert packets.connect("id", clean=True, keepalive=30, username=None, password=None) == (
        b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x1e\x00\x02id"
    )
    assert packets.connect("id", clean=False, keepalive=10, username="u", password="pw") == (
        b"\x10\x15\x00\x04MQTT\x04\xc0\x00\x0a\x00\x02id\x00\x01u\x00\x02pw"
    )
    assert packets.subscribe(10, ["a/b", "c"]) == b"\x82\x0c\x00\x0a\x00\x03a/b\x01\x00\x01c\x01"
    assert packets.acknowledge([1, 0x0203]) == b"\x40\x02\x00\x01\x40\x02\x02\x03"
