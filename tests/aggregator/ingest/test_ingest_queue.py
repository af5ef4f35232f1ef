import errno
import mmap
import os
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.ingest import ingest_queue
from laggard_aggregator.ingest.batches import Message
from laggard_aggregator.ingest.ingest_queue import BURST, DEFERRED_BURST, NODE_LIVE, IngestQueue
from laggard_common import wire
from laggard_common.wire import Kind, topics
from laggard_common.wire.limits import MAX_MESSAGE_BYTES
from tests.aggregator.ingest.test_admission import joined
from tests.support.builders.messages import NOW, data_message, envelope


def of(node: str, number: int = 1) -> list[Message]:
    topic = topics.data_topic("site", "storage", node, "diskstats")
    return [(topic, b"x", at) for at in range(number)]


def backlog(number: int) -> list[Message]:
    topic, payload = data_message(joined(range(3)))
    return [(topic, payload, at) for at in range(number)]


def nodes(messages: Iterable[Message]) -> list[str]:
    return [topic.split("/")[4] for topic, _, _ in messages]


def test_joined_batches_stand_behind_everything_else() -> None:
    box = IngestQueue(100)
    assert box.put([*backlog(2), *of("oss-2"), *backlog(1), *of("oss-1", 3)]) == [
        *(False, False, True),
        *(False, True, True, True),
    ]
    assert box.take_deferred() == []
    assert nodes(box.take_live()) == ["oss-2", "oss-1", "oss-1", "oss-1"]
    assert box.take_deferred() == [*backlog(2), *backlog(1)]
    assert (len(box), box.dropped) == (0, 0)


def test_messages_that_the_kernel_has_no_memory_for_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error in the middle of a read would leave live messages queued that nobody accounts for."""
    box = IngestQueue(100)

    def refuse(*_: int) -> mmap.mmap:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as full:
        full.setattr("laggard_aggregator.ingest.ingest_queue.mmap.mmap", refuse)
        assert box.put([*of("oss-2"), *backlog(2), *of("oss-1")]) == [True, False, False, True]
    assert (len(box), box.dropped) == (2, 2)
    assert box.put(backlog(1)) == [False]
    assert nodes(box.take_live()) == ["oss-2", "oss-1"]
    assert box.take_deferred() == backlog(1)
    assert (len(box), box.size_bytes, box._of_node) == (0, 0, {})


def test_a_message_begins_with_its_kind_as_the_inbox_knows_it() -> None:
    _, plain = data_message(envelope(0))
    _, behind = data_message(joined(range(2)))
    assert wire.decode_envelope(behind).kind == Kind.JOINED
    assert behind.startswith(ingest_queue._JOINED)
    assert not plain.startswith(ingest_queue._JOINED)


def test_who_floods_waits_behind_the_others() -> None:
    box = IngestQueue(100_000)
    box.put(of("evil", 3 * NODE_LIVE[0]))
    box.put(of("oss-1", 5))
    assert nodes(box.take_live()) == ["evil"] * NODE_LIVE[0]
    assert nodes(box.take_live()) == ["oss-1"] * 5
    assert nodes(box.take_deferred()) == ["evil"] * DEFERRED_BURST
    box.put(of("oss-2"))
    assert box.take_deferred() == []
    assert nodes(box.take_live()) == ["oss-2"]


@pytest.mark.parametrize(("payload_bytes", "at_once"), [(3, 64), (5000, 24), (60_000, 3), (10**6, 1)])
def test_deferred_messages_are_taken_by_their_bytes(payload_bytes: int, at_once: int) -> None:
    """So that long ones delay live data no more than short ones, and short ones are decoded together."""
    box = IngestQueue(100_000)
    topic, payload = backlog(1)[0][0], ingest_queue._JOINED.ljust(payload_bytes, b"x")
    box.put([(topic, payload, at) for at in range(2 * BURST)])
    assert len(box.take_deferred()) == at_once
    assert len(box.take_deferred()) == at_once


def test_a_node_has_one_share_under_whatever_role_it_sends() -> None:
    box = IngestQueue(100_000)
    of_roles = [(f"laggard/1/site/role-{n}/evil/data/x", b"x", n) for n in range(2 * NODE_LIVE[0])]
    assert sum(box.put(of_roles)) == NODE_LIVE[0]


def test_strangers_wait_behind_those_who_are_known() -> None:
    known = {"oss-1"}
    box = IngestQueue(100_000, is_known=known.__contains__)
    messages = [*(of(f"n{n}")[0] for n in range(50)), *of("oss-1")]
    assert box.put(messages) == [False] * 50 + [True]
    assert nodes(box.take_live()) == ["oss-1"]
    assert nodes(box.take_deferred()) == [f"n{n}" for n in range(50)]
    known.add("n1")
    assert box.put(of("n1")) == [True]


def test_a_node_that_flooded_is_in_front_again_when_little_of_it_waits() -> None:
    box = IngestQueue(100_000)
    box.put(of("oss-1", NODE_LIVE[0] + 1))
    assert box.put(of("oss-1")) == [False]
    box.take_live()
    assert box.put(of("oss-1")) == [True]


def test_messages_of_a_node_and_of_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_queue, "NODE_LIVE", (2, 10**6))
    monkeypatch.setattr(ingest_queue, "NODE_TOTAL", (5, 10**6))
    box = IngestQueue(8)
    box.put([*of("evil", 20), *of("worse", 20), *of("oss-1", 2), *of("worst", 20)])
    assert len(box) == 2 + 2 + 2 + 2 + 3 + 3 + 2
    assert box.dropped == 62 - len(box)


BIG = [(of("oss-1")[0][0], bytes(1000), NOW)] * 6
BIG_BYTES = ingest_queue._size(BIG[0])


def test_what_takes_much_memory_waits_behind_and_then_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_queue, "NODE_LIVE", (100, 2 * BIG_BYTES))
    monkeypatch.setattr(ingest_queue, "NODE_TOTAL", (100, 5 * BIG_BYTES))
    box = IngestQueue(100)
    assert box.put(BIG) == [True, True, False, False, False, False]
    assert (len(box), box.dropped, box.size_bytes) == (5, 1, 5 * BIG_BYTES)
    assert box.put(of("oss-2")) == [True]
    box.take_live()
    assert len(box.take_deferred()) == 3
    assert box.size_bytes == 0
    assert box.put(BIG) == [True, True, False, False, False, False]


def test_live_data_have_half_of_the_memory_for_themselves() -> None:
    every = [f"laggard/1/site/storage/oss-{number:02}/data/x" for number in range(20)]
    behind = [(topic, ingest_queue._JOINED + bytes(997), NOW) for topic in every]
    size = ingest_queue._size(behind[0])
    box = IngestQueue(100, 10 * size)
    assert box.put(behind) == [False] * 20
    assert (len(box), box.dropped, box.size_bytes) == (5, 15, 5 * size)
    assert box.put([(topic, bytes(1000), NOW) for topic in every]) == [True] * 5 + [False] * 15
    assert (len(box), box.dropped, box.size_bytes) == (10, 30, 10 * size)


def test_one_message_that_is_as_long_as_any_may_be_stands_in_front() -> None:
    box = IngestQueue(100, 4 * MAX_MESSAGE_BYTES)
    assert box.put([(of("oss-1")[0][0], bytes(MAX_MESSAGE_BYTES), NOW)]) == [True]
    assert box.put(of("oss-1")) == [False]


@pytest.mark.parametrize("name", ["oss-{}", "\ufffd{}", "{}" + "x" * 10_000])
def test_no_more_memory_is_taken_than_is_counted(name: str) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        box = IngestQueue(1000)
        for number in range(1000):
            topic = f"laggard/1/site/storage/{name.format(number)}/data/x"
            box.put([(topic, os.urandom(100), NOW + number)])
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(box) == 1000
    assert box.size_bytes / 4 < taken < box.size_bytes


messages = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3000), st.booleans()), max_size=9)


@given(steps=st.lists(st.one_of(messages, st.sampled_from(["burst", "behind"])), max_size=40))
def test_bounds_hold_whatever_comes_and_who_waits_is_taken_once(
    steps: list[list[tuple[str, int, bool]] | str],
) -> None:
    box = IngestQueue(10, 12_000, is_known="ab".__contains__)
    came = 0
    said: list[int] = []
    of_front: list[int] = []
    of_behind: list[int] = []
    for step in [*steps, *["burst", "behind"] * 5]:
        if step == "burst":
            of_front += [number for _, _, number in box.take_live()]
        elif step == "behind":
            of_behind += [number for _, _, number in box.take_deferred()]
        elif isinstance(step, list):
            some = [
                (
                    f"laggard/1/site/storage/{node}/data/x",
                    ingest_queue._JOINED * later + bytes(size),
                    came + at,
                )
                for at, (node, size, later) in enumerate(step)
            ]
            came += len(some)
            said += [m[2] for m, front in zip(some, box.put(some), strict=True) if front]
        assert len(box) <= 20
        assert box.size_bytes <= 12_000
    assert of_front == said
    assert of_behind == sorted(set(of_behind) - set(of_front))
    assert len(of_front) + len(of_behind) == came - box.dropped
    assert (len(box), box.size_bytes, box._of_node) == (0, 0, {})
