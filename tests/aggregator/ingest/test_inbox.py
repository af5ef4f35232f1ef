from collections.abc import Iterable

import pytest

from laggard_aggregator.ingest import inbox
from laggard_aggregator.ingest.inbox import BEHIND_AT_ONCE, MOST_OF_NODE, Inbox, Received
from laggard_common import topics, wire
from laggard_common.wire import Kind
from tests.aggregator.ingest.made_messages import NOW, data_message, envelope
from tests.aggregator.ingest.test_intake import joined


def of(node: str, number: int = 1) -> list[Received]:
    topic = topics.data_topic("site", "storage", node, "diskstats")
    return [(topic, b"x", at) for at in range(number)]


def backlog(number: int) -> list[Received]:
    topic, payload = data_message(joined(range(3)))
    return [(topic, payload, at) for at in range(number)]


def nodes(messages: Iterable[Received]) -> list[str]:
    return [topic.split("/")[4] for topic, _, _ in messages]


def test_joined_batches_stand_behind_everything_else() -> None:
    box = Inbox(100)
    assert box.put([*backlog(2), *of("oss-2"), *backlog(1), *of("oss-1", 3)]) == [
        *(False, False, True),
        *(False, True, True, True),
    ]
    assert box.behind() == []
    assert nodes(box.burst()) == ["oss-2", "oss-1", "oss-1", "oss-1"]
    assert box.behind() == [*backlog(2), *backlog(1)]
    assert (len(box), box.dropped) == (0, 0)


def test_a_message_begins_with_its_kind_as_the_inbox_knows_it() -> None:
    _, plain = data_message(envelope(0))
    _, behind = data_message(joined(range(2)))
    assert wire.decode_envelope(behind).kind == Kind.JOINED
    assert behind.startswith(inbox._JOINED)
    assert not plain.startswith(inbox._JOINED)


def test_who_floods_waits_behind_the_others() -> None:
    box = Inbox(100_000)
    box.put(of("evil", 3 * MOST_OF_NODE))
    box.put(of("oss-1", 5))
    assert nodes(box.burst()) == ["evil"] * MOST_OF_NODE
    assert nodes(box.burst()) == ["oss-1"] * 5
    assert nodes(box.behind()) == ["evil"] * BEHIND_AT_ONCE
    box.put(of("oss-2"))
    assert box.behind() == []
    assert nodes(box.burst()) == ["oss-2"]


def test_strangers_wait_behind_those_who_are_known() -> None:
    known = {"oss-1"}
    box = Inbox(100_000, known.__contains__)
    messages = [*(of(f"n{n}")[0] for n in range(50)), *of("oss-1")]
    assert box.put(messages) == [False] * 50 + [True]
    assert nodes(box.burst()) == ["oss-1"]
    assert nodes(box.behind()) == [f"n{n}" for n in range(BEHIND_AT_ONCE)]
    known.add("n1")
    assert box.put(of("n1")) == [True]


def test_a_node_that_flooded_is_in_front_again_when_little_of_it_waits() -> None:
    box = Inbox(100_000)
    box.put(of("oss-1", MOST_OF_NODE + 1))
    assert box.put(of("oss-1")) == [False]
    box.burst()
    assert box.put(of("oss-1")) == [True]


def test_behind_is_bounded_in_messages_of_a_node_and_of_all_and_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "MOST_OF_NODE", 2)
    monkeypatch.setattr(inbox, "BEHIND_OF_NODE", 5)
    box = Inbox(8)
    box.put([*of("evil", 20), *of("worse", 20), *of("oss-1", 2), *of("worst", 20)])
    assert len(box) == 2 + 2 + 2 + 2 + 3 + 3 + 2
    assert box.dropped == 62 - len(box)
    monkeypatch.setattr(inbox, "BEHIND_BYTES", 2500)
    box = Inbox(100)
    big = [(of("oss-1")[0][0], bytes(1000), NOW)] * 6
    box.put(big)
    assert (len(box), box.dropped) == (4, 2)
    box.burst()
    assert len(box.behind()) == 2
    assert box.put(big) == [True, True, False, False, False, False]
    assert len(box) == 4
