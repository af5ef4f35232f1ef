"""Admission of documents: each once, acknowledged once durable, never more than their share of the queue."""

from collections import Counter
from dataclasses import replace

import pytest

from laggard_aggregator.ingest.admission import MAX_NODE_DOCUMENT_BYTES, Admission, Room
from laggard_aggregator.ingest.batches import Accepted, Document
from laggard_aggregator.log.entries import LogEntry, LogSequence
from laggard_common import wire
from laggard_common.wire import Envelope
from laggard_common.wire.topics import data_topic
from tests.support.builders.documents import document_envelope
from tests.support.builders.messages import NOW, SECOND, envelope, schema, schema_message
from tests.support.builders.messages import data_message as batch_message

AT = NOW + 5 * SECOND


def message(of: Envelope) -> tuple[str, bytes, int]:
    return data_topic("site", "compute", of.node, of.source), wire.encode_envelope(of), AT


def feed(admission: Admission, *envelopes: Envelope, room: Room | None = None) -> list[Accepted]:
    return list(admission.receive([message(each) for each in envelopes], room))


def acknowledged(admission: Admission) -> tuple[tuple[int, int], ...]:
    """Ranges of cn-1. A stream without a schema has an entry without ranges besides."""
    found = {topic: wire.decode_ack(payload) for topic, payload in admission.acks.messages()}
    return tuple(each for ack in found.get("laggard/1/site/ack/cn-1", ()) for each in ack.ranges)


def test_a_document_is_accepted_once_without_a_schema_and_acknowledged_once_durable() -> None:
    admission = Admission("site", LogSequence())
    entries: list[LogEntry] = []
    admission.record = entries.append
    (found,) = feed(admission, document_envelope(0, NOW, b"one"))
    assert isinstance(found, Document)
    assert (found.lsn, found.node, found.source, found.value_bytes) == (1, "cn-1", "jobs", 3)
    assert acknowledged(admission) == ()
    admission.acks.durable(1)
    assert acknowledged(admission) == ((0, 0),)
    assert feed(admission, document_envelope(0, NOW, b"one")) == []
    assert (admission.counts.duplicates, admission.counts.documents, len(entries)) == (1, 1, 1)


def test_documents_and_batches_keep_their_order() -> None:
    admission = Admission("site", LogSequence())
    list(admission.receive([(*schema_message(schema()), AT)]))
    messages = [
        (*batch_message(envelope(0)), AT),
        message(document_envelope(0, NOW)),
        (*batch_message(envelope(1)), AT),
        message(document_envelope(1, NOW)),
    ]
    found = list(admission.receive(messages))
    assert [each.lsn for each in found] == [1, 2, 3, 4]
    assert [isinstance(each, Document) for each in found] == [False, True, False, True]


def test_a_node_has_its_share_of_the_queue_and_sends_the_rest_again() -> None:
    admission = Admission("site", LogSequence())
    room = Room(100, 2 * MAX_NODE_DOCUMENT_BYTES, Counter({"cn-1": MAX_NODE_DOCUMENT_BYTES - 5}))
    found = feed(
        admission,
        document_envelope(0, NOW, b"12345"),
        document_envelope(1, NOW, b"6"),
        document_envelope(0, NOW, b"other", node="cn-2"),
        room=room,
    )
    assert [(each.node, each.lsn) for each in found if isinstance(each, Document)] == [
        ("cn-1", 1),
        ("cn-2", 2),
    ]
    assert admission.counts.unaccepted == 1
    admission.acks.durable(2)
    assert acknowledged(admission) == ((0, 0),)
    assert len(feed(admission, document_envelope(1, NOW, b"6"))) == 1
    assert admission.counts.gaps == admission.counts.duplicates == 0


@pytest.mark.parametrize(
    "changes",
    [{"codec": 0}, {"codec": 9}, {"payload": b"rubbish"}, {"n": 2}, {"payload": b""}],
)
def test_a_malformed_document_is_counted_and_nothing_else(changes: dict[str, object]) -> None:
    admission = Admission("site", LogSequence())
    assert feed(admission, replace(document_envelope(0, NOW), **changes)) == []  # type: ignore[arg-type]
    assert admission.wire_errors.total() == 1
    assert admission.counts.documents == 0


def test_a_document_beyond_the_limit_is_an_error_before_it_is_unpacked() -> None:
    admission = Admission("site", LogSequence())
    assert feed(admission, document_envelope(0, NOW, bytes(3 * 1024**2))) == []
    assert admission.wire_errors == {"document": 1}
