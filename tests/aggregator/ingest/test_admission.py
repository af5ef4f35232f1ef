from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.ingest import admission, dedup_state, schema_wait
from laggard_aggregator.ingest.admission import NO_ROOM, Admission, Room
from laggard_aggregator.ingest.batches import Accepted, Batch
from laggard_aggregator.log.entries import LogSequence
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, limits
from laggard_common.wire.schema import Field, Schema
from laggard_common.wire.topics import ack_topic
from tests.support.builders.messages import (
    NOW,
    SECOND,
    STREAM,
    data_message,
    envelope,
    schema,
    schema_message,
    status_message,
)
from tests.support.thorough import examples


def stream_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def make() -> Admission:
    return Admission("site", LogSequence())


def feed(taker: Admission, *messages: tuple[str, bytes], at_ns: int = NOW + 5 * SECOND) -> list[Batch]:
    return batches(each for message in messages for each in taker.receive(((*message, at_ns),)))


def batches(found: Iterable[Accepted]) -> list[Batch]:
    return [each for each in found if isinstance(each, Batch)]


def acks_of(taker: Admission) -> dict[str, tuple[wire.Ack, ...]]:
    return {topic: wire.decode_ack(payload) for topic, payload in taker.acks.messages()}


def test_a_message_is_taken_with_its_schema_and_an_ordinal() -> None:
    taker = make()
    first, second = feed(
        taker, schema_message(schema()), data_message(envelope(0)), data_message(envelope(1, t0_ns=NOW + 1))
    )
    assert (first.seq, first.lsn, second.lsn) == (0, 1, 2)
    assert first.schema == schema()
    assert first.counters.values.shape == (5, 2, 2)
    assert (first.site, first.role, first.received_ns) == ("site", "storage", NOW + 5 * SECOND)
    assert not first.late.any()
    assert taker.counts.messages == 3


def test_known_is_who_said_what_its_batches_mean() -> None:
    taker = make()
    feed(taker, status_message({"state": "up"}), status_message({"state": "up"}, node="oss-2"))
    assert not taker.is_known("oss-1")
    feed(taker, schema_message(schema()))
    assert (taker.is_known("oss-1"), taker.is_known("oss-2")) == (True, False)


@given(st.lists(st.integers(0, 7), max_size=20))
def test_each_message_is_taken_once_in_whatever_order(seqs: list[int]) -> None:
    taker = make()
    feed(taker, schema_message(schema()))
    taken = [batch.seq for seq in seqs for batch in feed(taker, data_message(envelope(seq)))]
    assert taken == list(dict.fromkeys(seqs))
    assert taker.counts.duplicates == len(seqs) - len(taken)


def test_messages_wait_for_their_schema_and_for_their_epoch() -> None:
    taker = make()
    assert feed(taker, data_message(envelope(0)), data_message(envelope(1, epoch=2, components=3))) == []
    assert taker.held == 2
    assert [batch.seq for batch in feed(taker, schema_message(schema()))] == [0]
    assert taker.held == 1
    newer = schema(epoch=2, components=("a", "b", "c"))
    assert [batch.seq for batch in feed(taker, schema_message(newer))] == [1]
    assert taker.held == 0


def test_who_sent_batches_without_a_schema_hears_of_it() -> None:
    """Somebody who hears nothing at all takes it that nobody acknowledges, and sends nothing again."""
    taker = make()
    feed(taker, data_message(envelope(0)))
    assert acks_of(taker) == {ack_topic("site", "oss-1"): (wire.Ack(STREAM, "diskstats", ()),)}
    assert acks_of(taker) == {}
    (batch,) = feed(taker, schema_message(schema()))
    taker.acks.durable(batch.lsn)
    assert acks_of(taker) == {ack_topic("site", "oss-1"): (wire.Ack(STREAM, "diskstats", ((0, 0),)),)}


def test_a_message_held_twice_is_taken_once() -> None:
    taker = make()
    feed(taker, data_message(envelope(0)), data_message(envelope(0)))
    assert len(feed(taker, schema_message(schema()))) == 1
    assert taker.counts.duplicates == 1


def test_a_message_of_an_earlier_epoch_is_read_with_a_later_schema() -> None:
    taker = make()
    feed(taker, schema_message(schema(epoch=3, components=("a", "b", "c"))))
    (batch,) = feed(taker, data_message(envelope(0, epoch=1)))
    assert batch.schema.epoch == 3
    assert batch.counters.indexes.tolist() in ([0, 1], [1, 0])


def test_waiting_is_bounded_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_wait, "MAX_HELD", 3)
    taker = make()
    feed(taker, *(data_message(envelope(seq)) for seq in range(5)))
    assert (taker.held, taker.refused["schema_missing"]) == (3, 2)
    taker.sweep(NOW + 5 * SECOND + schema_wait.HELD_NS + 1)
    assert (taker.held, taker.refused["schema_missing"]) == (0, 5)
    assert [batch.seq for batch in feed(taker, schema_message(schema()), data_message(envelope(4)))] == [4]


def test_one_node_cannot_fill_the_waiting_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_wait, "MAX_HELD_OF_NODE", 2)
    taker = make()
    feed(taker, data_message(envelope(0, node="oss-2")))
    feed(taker, *(data_message(envelope(seq)) for seq in range(9)))
    assert (taker.held, taker.refused["schema_missing"]) == (3, 7)


@pytest.mark.parametrize(
    "changed",
    [
        schema(epoch=2, components=("b", "a")),
        schema(epoch=2, components=("a",)),
        replace(schema(epoch=2), fields=(Field("rd_ios"), Field("other"))),
        replace(schema(epoch=2), fields=(Field("rd_ios"),)),
    ],
)
def test_a_schema_that_does_not_extend_the_one_before_is_refused(changed: Schema) -> None:
    taker = make()
    feed(taker, schema_message(schema()), schema_message(changed))
    assert taker.refused["schema"] == 1
    (batch,) = feed(taker, data_message(envelope(0)))
    assert batch.schema == schema()


def test_a_name_may_change_with_the_epoch() -> None:
    taker = make()
    renamed = replace(
        schema(epoch=2), components=tuple(replace(c, name=c.name + "x") for c in schema().components)
    )
    feed(taker, schema_message(schema()), schema_message(renamed))
    (batch,) = feed(taker, data_message(envelope(0)))
    assert batch.schema.components[0].name == "sdax"


def test_a_message_that_contradicts_its_topic_is_refused() -> None:
    taker = make()
    feed(taker, schema_message(schema()))
    topic, _ = data_message(envelope(0))
    assert feed(taker, (topic, data_message(envelope(0, node="oss-2"))[1])) == []
    assert feed(taker, (topic.replace("diskstats", "net"), data_message(envelope(0))[1])) == []
    assert feed(taker, (schema_message(schema())[0], wire.encode_schema(schema(node="oss-9")))) == []
    assert feed(taker, data_message(envelope(0), site="elsewhere")) == []
    assert feed(taker, (topic, wire.encode_envelope(replace(envelope(0), kind=Kind.STATE)))) == []
    assert taker.refused == {"topic": 3, "site": 1, "kind": 1}


@pytest.mark.parametrize("t0_ns", [0, NOW - 400 * 86400 * SECOND, NOW + 2 * 86400 * SECOND, 2**63 - 1])
def test_times_beyond_reason_are_refused(t0_ns: int) -> None:
    taker = make()
    feed(taker, schema_message(schema()))
    assert feed(taker, data_message(envelope(0, t0_ns=t0_ns))) == []
    assert taker.refused["time"] == 1


def test_a_payload_beyond_its_schema_is_an_error_and_never_asked_for_again() -> None:
    taker = make()
    feed(taker, schema_message(schema()))
    assert feed(taker, data_message(envelope(0, components=3))) == []
    assert feed(taker, data_message(replace(envelope(1), payload=b"rubbish"))) == []
    assert taker.wire_errors == {"payload": 1, "zstd": 1}
    (batch,) = feed(taker, data_message(envelope(2)))
    taker.acks.durable(batch.lsn)
    assert acks_of(taker)[ack_topic("site", "oss-1")][0].ranges == ((0, 2),)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(["data/diskstats", "schema/diskstats", "status"]), st.binary(max_size=200))
def test_any_bytes_are_counted_and_harm_nothing(channel: str, payload: bytes) -> None:
    taker = make()
    assert feed(taker, (f"laggard/1/site/storage/oss-1/{channel}", payload)) == []
    assert taker.wire_errors.total() + taker.refused.total() + taker.held <= 1


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_mutated_messages_are_counted_or_taken(data: st.DataObject) -> None:
    taker = make()
    feed(taker, schema_message(schema()))
    topic, payload = data_message(envelope(0))
    at = data.draw(st.integers(0, len(payload) - 1))
    mutated = payload[:at] + bytes([data.draw(st.integers(0, 255))]) + payload[at + 1 :]
    taken = len(feed(taker, (topic, mutated)))
    assert taken + taker.wire_errors.total() + taker.refused.total() + taker.held == 1


@given(st.text(max_size=60))
def test_any_topic_is_counted(topic: str) -> None:
    taker = make()
    assert feed(taker, (topic, b"x")) == []
    assert taker.wire_errors.total() + taker.counts.messages in (0, 2)


def test_acknowledgements_of_many_ranges_fit_what_a_node_reads() -> None:
    taker = make()
    seqs = [10**18 + 2 * i for i in range(4000)]
    sources = ["a", "b", "c", "d", "e"]
    for source in sources:
        feed(taker, schema_message(replace(schema(), source=source)))
        bad = replace(envelope(0), source=source, payload=b"rubbish")  # never asked for again
        feed(taker, *(data_message(replace(bad, seq=seq)) for seq in seqs))
    (batch,) = feed(taker, data_message(replace(envelope(0), source=sources[0])))
    taker.acks.durable(batch.lsn)
    payloads = [payload for _, payload in taker.acks.messages()]
    assert len(payloads) == 3
    assert max(map(len, payloads)) <= limits.MAX_ACK_BYTES
    acks = [ack for payload in payloads for ack in wire.decode_ack(payload)]
    told = [(ack.source, low) for ack in acks for low, high in ack.ranges if low == high]
    assert told == [("a", 0), *((source, seq) for source in sources for seq in seqs)]


def test_what_aggregators_say_is_ignored() -> None:
    taker = make()
    assert feed(taker, (ack_topic("site", "oss-1"), b"whatever")) == []
    assert taker.counts.messages == 0


def test_acknowledged_is_what_is_safe_and_nothing_else() -> None:
    taker = make()
    feed(taker, schema_message(schema()))
    batches = feed(taker, *(data_message(envelope(seq)) for seq in (0, 1, 2)))
    assert acks_of(taker) == {}
    taker.acks.durable(batches[1].lsn)
    assert acks_of(taker) == {
        "laggard/1/site/ack/oss-1": (wire.Ack(stream=STREAM, source="diskstats", ranges=((0, 1),)),)
    }
    assert acks_of(taker) == {}
    feed(taker, data_message(envelope(0)))
    assert acks_of(taker)["laggard/1/site/ack/oss-1"][0].ranges == ((0, 1),)


def test_a_duplicate_before_anything_is_safe_acknowledges_nothing() -> None:
    taker = make()
    feed(taker, schema_message(schema()), data_message(envelope(0)), data_message(envelope(0)))
    assert acks_of(taker) == {}


def test_two_streams_at_once_are_noticed_and_a_new_spool_is_not() -> None:
    taker = make()
    other = b"stream-number-02"
    feed(taker, schema_message(schema()), schema_message(schema(stream=other)))
    feed(taker, data_message(at(0)), data_message(at(3, stream=other)))
    assert taker.counts.two_streams == 0
    feed(taker, data_message(at(5)))
    assert taker.counts.two_streams == 1
    assert taker.nodes_twice == {"oss-1"}
    feed(taker, data_message(at(8, stream=other)))
    assert taker.counts.two_streams == 2


def at(second: int, stream: bytes = STREAM) -> wire.Envelope:
    """The batch of a second, which is its number as well."""
    return envelope(second, stream=stream, t0_ns=NOW + (second - 600) * SECOND)


@pytest.mark.parametrize("known", [True, False], ids=["before", "unsent"])
def test_the_backlog_of_a_stream_that_ended_is_no_second_agent(known: bool) -> None:
    """A power loss, or a spool that went to memory: a new stream is live, the old one's backlog between."""
    taker = make()
    other = b"stream-number-02"
    feed(taker, schema_message(schema()), schema_message(schema(stream=other)))
    if known:
        feed(taker, data_message(at(0)))
    live = [at(300 + 10 * n, stream=other) for n in range(8)]
    backlog = [at(10 + 10 * n) for n in range(8)]
    for pair in zip(live, backlog, strict=True):
        feed(taker, *map(data_message, pair))
    assert taker.counts.two_streams == 0
    assert taker.nodes_twice == set()


def test_two_agents_are_noticed_where_one_has_a_backlog() -> None:
    taker = make()
    other = b"stream-number-02"
    feed(taker, schema_message(schema()), schema_message(schema(stream=other)))
    for n in range(3):
        feed(taker, data_message(at(100 + 10 * n)), data_message(at(10 * n, stream=other)))
    assert taker.counts.two_streams == 0
    feed(taker, data_message(at(128, stream=other)), data_message(at(130)))
    assert taker.counts.two_streams == 2


def test_streams_beyond_those_kept_are_accepted_once_before_and_after_they_are_durable() -> None:
    """Six agents of one name: each batch comes again, as its agent has heard nothing of it."""
    taker = make()
    streams = [stream_of(n) for n in range(6)]
    feed(taker, *(schema_message(schema(stream=stream)) for stream in streams))
    messages = [data_message(envelope(0, stream=stream)) for stream in streams]
    accepted = feed(taker, *messages, *messages)
    assert len(accepted) == 6
    taker.acks.durable(accepted[-1].lsn)
    (acks,) = acks_of(taker).values()
    assert {ack.stream: ack.ranges for ack in acks} == dict.fromkeys(streams, ((0, 0),))
    assert feed(taker, *messages) == []
    assert taker.counts.duplicates == 12


def test_agents_of_one_name_are_noticed_however_many_they_are() -> None:
    taker = make()
    streams = [stream_of(n) for n in range(9)]
    feed(taker, *(schema_message(schema(stream=stream)) for stream in streams))
    for second in (0, 9, 18):
        feed(taker, *(data_message(at(second + n, stream=stream)) for n, stream in enumerate(streams)))
    assert taker.counts.two_streams == 18


def test_a_stream_is_dropped_when_it_is_silent_and_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = make()
    streams = [stream_of(n) for n in range(7)]
    feed(taker, *(schema_message(schema(stream=stream)) for stream in streams))
    accepted = feed(taker, *(data_message(envelope(0, stream=stream)) for stream in streams[:6]))
    later = NOW + 10 * SECOND + dedup_state.KEPT_NS

    def known() -> set[bytes]:
        taker.acks.request_ack("oss-1")
        return {ack.stream for acks in acks_of(taker).values() for ack in acks}

    taker.acks.durable(accepted[2].lsn)
    feed(taker, schema_message(schema(stream=stream_of(7))), at_ns=later - SECOND * 6)
    assert known() == set(streams[:3]), "none is silent for long enough"
    feed(taker, schema_message(schema(stream=stream_of(8))), at_ns=later)
    taker.acks.durable(accepted[-1].lsn)
    assert known() == set(streams[3:6]), "those that were pending"
    restored = make()
    for part in taker.state():
        restored.restore(part)
    assert feed(restored, data_message(envelope(0, stream=streams[3]))) == []
    assert restored.counts.duplicates == 1


def test_a_node_with_batches_that_are_not_durable_is_known_to_be_pending() -> None:
    """Forgotten meanwhile, as while the state disk fails, its agent's repetition would be accepted again."""
    taker = make()
    (batch,) = feed(taker, schema_message(schema()), data_message(envelope(0)))
    later = NOW + 3600 * SECOND
    assert taker.is_pending(later)
    assert taker.is_pending(later, "oss-1")
    assert not taker.is_pending(later, "oss-2")
    assert not taker.is_pending(NOW - SECOND), "it is not silent"
    taker.acks.durable(batch.lsn)
    assert not taker.is_pending(later)
    assert taker.forget(later) == ["oss-1"]


def test_streams_of_a_node_are_bounded_and_further_ones_are_not_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_NODE_STREAMS", 8)
    taker = make()
    for n in range(10):
        stream = stream_of(n)
        feed(taker, schema_message(schema(stream=stream)), data_message(envelope(0, stream=stream)))
    assert taker.refused["streams"] == 4
    taker.acks.durable(100)
    (acks,) = acks_of(taker).values()
    assert {ack.stream for ack in acks} == {stream_of(n) for n in range(8)}


def test_acknowledgements_of_many_streams_fit_what_a_node_reads() -> None:
    taker = make()
    source = "s" * 128
    for n in range(dedup_state.MAX_NODE_STREAMS):
        stream = stream_of(n)
        feed(taker, schema_message(replace(schema(stream=stream), source=source)))
        feed(taker, data_message(replace(envelope(0, stream=stream), source=source)))
    taker.acks.durable(taker.counts.messages)
    payloads = [payload for _, payload in taker.acks.messages()]
    assert max(map(len, payloads)) <= limits.MAX_ACK_BYTES
    acks = [ack for payload in payloads for ack in wire.decode_ack(payload)]
    assert {ack.stream: ack.ranges for ack in acks} == {
        stream_of(n): ((0, 0),) for n in range(dedup_state.MAX_NODE_STREAMS)
    }


def test_streams_nodes_sources_and_components_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_NODES", 2)
    monkeypatch.setattr(admission, "MAX_NODE_COMPONENTS", 8)
    taker = make()
    for n in range(20):
        received_ns = NOW + 5 * SECOND + n * dedup_state.KEPT_NS
        feed(taker, schema_message(schema(stream=stream_of(n))), at_ns=received_ns)
    assert taker.refused["components"] == 0  # the streams pushed out do not count
    feed(taker, schema_message(schema(stream=b"another-stream-7", components=tuple("abcdefghi"))))
    assert taker.refused["components"] == 1
    feed(taker, schema_message(schema(node="oss-2")), schema_message(schema(node="oss-3")))
    feed(taker, status_message({"state": "up"}, node="oss-4"))
    assert taker.refused["nodes"] == 2
    assert len(taker.nodes) == 2


def test_a_gap_is_counted_after_its_horizon() -> None:
    taker = make()
    feed(taker, schema_message(schema()), data_message(envelope(0)), data_message(envelope(4)))
    taker.sweep(NOW + admission.GAP_HORIZON_NS)
    assert taker.counts.gaps == 0
    taker.sweep(NOW + 5 * SECOND + admission.GAP_HORIZON_NS)
    assert taker.counts.gaps == 3


def test_seqs_with_gaps_without_end_are_remembered_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_state, "MAX_RANGES", 3)
    taker = make()
    taken = feed(taker, schema_message(schema()), *(data_message(envelope(2 * n)) for n in range(9)))
    taker.acks.durable(taken[-1].lsn)
    (ack,) = acks_of(taker)[ack_topic("site", "oss-1")]
    assert ack.ranges == ((0, 12), (14, 14), (16, 16))
    assert taker.counts.gaps == 6


def test_batches_that_wait_to_be_safe_are_bounded_and_the_oldest_are_acknowledged_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dedup_state, "MAX_PENDING", 2)
    taker = make()
    taken = feed(taker, schema_message(schema()), *(data_message(envelope(seq)) for seq in range(5)))
    taker.acks.durable(taken[1].lsn)
    assert acks_of(taker) == {}
    taker.acks.durable(taken[2].lsn)
    (ack,) = acks_of(taker)[ack_topic("site", "oss-1")]
    assert ack.ranges == ((0, 2),)
    taker.acks.durable(taken[4].lsn)
    (ack,) = acks_of(taker)[ack_topic("site", "oss-1")]
    assert ack.ranges == ((0, 4),)


def test_a_batch_without_room_is_not_acknowledged_and_is_accepted_later() -> None:
    taker = make()
    feed(taker, schema_message(schema()), data_message(envelope(0)))
    (judged,) = batches(taker.receive(((*data_message(envelope(1)), NOW + 5 * SECOND),), NO_ROOM))
    (last,) = feed(taker, data_message(envelope(2)))
    assert (judged.accepted, last.accepted, taker.counts.unaccepted) == (False, True, 1)
    taker.acks.durable(last.lsn)
    (ack,) = acks_of(taker)[ack_topic("site", "oss-1")]
    assert ack.ranges == ((0, 0), (2, 2))
    (again,) = feed(taker, data_message(envelope(1)))
    taker.acks.durable(again.lsn)
    (ack,) = acks_of(taker)[ack_topic("site", "oss-1")]
    assert (ack.ranges, taker.counts.duplicates, taker.counts.gaps) == (((0, 2),), 0, 0)


def test_room_is_claimed_before_a_batch_is_accepted() -> None:
    """Two components with two counters of 8 bytes over five ticks: 160 bytes."""
    taker, room = make(), Room(batches=9, value_bytes=400)
    feed(taker, schema_message(schema()), data_message(envelope(9)))  # with which the schema's memory goes
    messages = [(*data_message(envelope(seq)), NOW + 5 * SECOND) for seq in range(4)]
    found = batches(taker.receive(messages, room))
    assert [batch.accepted for batch in found] == [True, True, False, False]
    assert all(batch.counters.values.nbytes <= 160 for batch in found)
    assert (room.batches, room.value_bytes) == (7, 80)


LATER = NOW + 600 * SECOND


def joined(seqs: range, last: int = 5) -> Envelope:
    """The batches of `seqs` in one message, each of five ticks but the last one."""
    lengths = [5] * (len(seqs) - 1) + [last]
    rows = [[[100 * seq + t, 7 * t]] * 2 for seq, n in zip(seqs, lengths, strict=True) for t in range(n)]
    payload = wire.join_payload(lengths, codec.Encoder().encode(range(2), rows, [0] * len(rows)))
    first = envelope(seqs[0], t0_ns=NOW + 5 * seqs[0] * SECOND)
    return replace(first, kind=Kind.JOINED, n=len(rows), payload=payload)


def test_joined_batches_are_taken_together_and_acknowledged_one_by_one() -> None:
    taker = make()
    (taken,) = feed(taker, schema_message(schema()), data_message(joined(range(2, 5), last=3)), at_ns=LATER)
    assert (taken.seq, taken.lsn, taken.counters.tick_ns.size, taken.late.size) == (2, 1, 13, 13)
    assert taken.counters.values[:, 0, 0].tolist() == [*range(200, 205), *range(300, 305), *range(400, 403)]
    assert acks_of(taker) == {}
    taker.acks.durable(1)
    assert acks_of(taker) == {ack_topic("site", "oss-1"): (wire.Ack(STREAM, "diskstats", ((2, 4),)),)}


def test_coalesced_batches_without_room_are_all_accepted_later() -> None:
    taker = make()
    feed(taker, schema_message(schema()), data_message(envelope(0)))
    (judged,) = taker.receive(((*data_message(joined(range(1, 4))), LATER),), NO_ROOM)
    taker.acks.durable(judged.lsn)
    assert acks_of(taker) == {ack_topic("site", "oss-1"): (wire.Ack(STREAM, "diskstats", ((0, 0),)),)}
    (again,) = feed(taker, data_message(joined(range(1, 4))), at_ns=LATER)
    assert again.counters.tick_ns.size == 15


@given(st.sets(st.integers(0, 5)), st.lists(st.sampled_from([(0, 3), (1, 6), (2, 4), (0, 6)]), max_size=5))
def test_every_tick_is_taken_once_however_batches_were_joined(
    alone: set[int], spans: list[tuple[int, int]]
) -> None:
    taker = make()
    feed(taker, schema_message(schema()))
    messages = [envelope(seq, t0_ns=NOW + 5 * seq * SECOND) for seq in alone]
    messages += [joined(range(*span)) for span in spans]
    taken = feed(taker, *map(data_message, messages), at_ns=LATER)
    seqs = alone.union(*(range(*span) for span in spans))
    ticks = sorted(tick for batch in taken for tick in batch.counters.tick_ns.tolist())
    assert ticks == [NOW + (5 * seq + t) * SECOND for seq in sorted(seqs) for t in range(5)]
    brought = len(alone) + sum(high - low for low, high in spans)
    assert taker.counts.duplicates == brought - len(seqs)


@pytest.mark.parametrize(
    "changed",
    [
        {"payload": b""},
        {"payload": b"\xff"},
        {"payload": wire.join_payload([], b"")},
        {"payload": wire.join_payload([5, 0, 5], b"")},
        {"payload": wire.join_payload([5, 5], b"")[:5]},
        {"payload": (4097).to_bytes(2, "little") + bytes(9000)},
        {"n": 11},
        {"seq": 2**64 - 1},
    ],
)
def test_joined_batches_that_contradict_themselves_are_errors(changed: dict[str, Any]) -> None:
    taker = make()
    malformed = replace(joined(range(2)), **changed)
    assert feed(taker, schema_message(schema()), data_message(malformed), at_ns=LATER) == []
    assert taker.wire_errors == {"joined": 1}
    assert len(feed(taker, data_message(joined(range(2))), at_ns=LATER)) == 1
