from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_agent.spool import backlog as coalesce
from laggard_agent.spool.backlog import ENOUGH_VALUES, LEAST_TICKS, MOST_TICKS, Coalescer
from laggard_agent.spool.decode import unpack
from laggard_agent.spool.segments import SpooledBatch
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Envelope, Kind, codec
from laggard_common.wire.codec import Encoder
from tests import naive_wire
from tests.naive_coalesce import apart
from tests.support.builders.wire_batches import MadeBatch, batches, lane
from tests.support.thorough import examples

SECOND = 10**9
T0 = 1_700_000_000 * SECOND


def steady(seq: int, ticks: int = 5, t0_ns: int | None = None, source: str = "diskstats") -> Envelope:
    rows = [[(100 * (5 * seq + t), 7), (3, 3)] for t in range(ticks)]
    payload = Encoder().encode([0, 2], rows, [150] * ticks)
    begin = T0 + 5 * seq * SECOND if t0_ns is None else t0_ns
    return Envelope(Kind.COUNTERS, "oss-1", source, bytes(16), seq, 1, begin, SECOND, ticks, 1, payload)


def through(envelopes: Sequence[Envelope]) -> list[Envelope]:
    joiner = Coalescer()
    found = [message for envelope in envelopes for message in joiner.add(SpooledBatch(envelope))]
    return [message.envelope for message in found + joiner.flush()]


@given(batches())
def test_rows_come_back_as_the_encoder_took_them(made: MadeBatch) -> None:
    rows = unpack(made.envelope())
    found = {
        index: [[lane(value) for value in tick[c]] for tick in rows.ticks]
        for c, index in enumerate(rows.indexes)
    }
    assert found == made.expected()
    assert rows.offsets_us == made.offsets_us


@given(batches(), batches(), st.integers(0, 1))
def test_whatever_is_joined_comes_apart_as_it_was(one: MadeBatch, other: MadeBatch, mixed: int) -> None:
    """With other components, fields or absent values it is not joined; with the same it is."""
    first = one.envelope(T0)
    alike = [first, replace(first, seq=1, t0_ns=T0 + first.n * SECOND)]
    last = other if mixed else one
    envelopes = [*alike, replace(last.envelope(T0 + 2 * first.n * SECOND), seq=2)]
    messages = through(envelopes)
    assert messages[0].kind == Kind.JOINED
    came = [naive_wire.decode(e) for message in messages for e in apart(message)]
    for found, sent in zip(came, map(naive_wire.decode, envelopes), strict=True):
        assert by_component(found) == by_component(sent)
        assert found.read_ns == sent.read_ns


def by_component(batch: naive_wire.NaiveBatch) -> dict[int, list[list[int | None]]]:
    return {index: [tick[at] for tick in batch.values] for at, index in enumerate(batch.indexes)}


def wide(seq: int, components: int) -> Envelope:
    rows = [[(5 * seq + t, 7)] * components for t in range(5)]
    payload = Encoder().encode(range(components), rows, [150] * 5)
    return Envelope(
        Kind.COUNTERS, "oss-1", "net", bytes(16), seq, 1, T0 + 5 * seq * SECOND, SECOND, 5, 1, payload
    )


@pytest.mark.parametrize(
    ("components", "ticks"),
    [(1, MOST_TICKS), (4, ENOUGH_VALUES // 8), (10, ENOUGH_VALUES // 20), (50, LEAST_TICKS)],
)
def test_a_message_is_full_with_enough_values_of_enough_ticks(components: int, ticks: int) -> None:
    joiner = Coalescer()
    found = [message for seq in range(140) for message in joiner.add(SpooledBatch(wide(seq, components)))]
    assert {message.envelope.n for message in found} == {-(-ticks // 5) * 5}
    assert sum(m.envelope.n for m in [*found, *joiner.flush()]) == 5 * 140


def test_a_message_says_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "MOST_TICKS", 60)
    joiner = Coalescer()
    found = [message for seq in range(12) for message in joiner.add(SpooledBatch(steady(seq)))]
    assert [(m.count, m.seqs, m.envelope.n) for m in found] == [(12, (0, 11), 60)]
    assert joiner.flush() == []
    (message,) = [m.envelope for m in found]
    assert (message.seq, message.n, message.t0_ns) == (0, 60, T0)
    assert wire.split_joined(message)[0] == (5,) * 12
    assert apart(message) == [steady(seq) for seq in range(12)]


def test_sources_are_joined_each_for_itself() -> None:
    envelopes = [steady(seq, source=source) for seq in range(3) for source in ("diskstats", "net")]
    assert [(m.source, m.n) for m in through(envelopes)] == [("diskstats", 15), ("net", 15)]


@pytest.mark.parametrize(
    "second",
    [
        replace(steady(1), seq=2),
        replace(steady(1), t0_ns=steady(1).t0_ns + SECOND),
        replace(steady(1), dt_ns=2 * SECOND),
        replace(steady(1), payload=Encoder().encode([0, 1], [[(1, 1), (2, 2)]] * 5, [0] * 5)),
        replace(steady(1), payload=Encoder().encode([0, 2], [[(1,), (2,)]] * 5, [0] * 5)),
        replace(steady(1), payload=Encoder().encode([0, 2], [[(1, None), (2, 2)]] * 5, [0] * 5)),
        replace(steady(1), payload=b"what another version wrote"),
        replace(steady(1), kind=Kind.EVENTS),
    ],
)
def test_what_does_not_follow_is_not_joined(second: Envelope) -> None:
    assert through([steady(0), second]) == [steady(0), second]


def test_a_message_is_bounded_in_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "MOST_VALUES", 4 * 12)
    assert [m.n for m in through([steady(seq) for seq in range(5)])] == [10, 10, 5]


@settings(max_examples=examples(300))
@given(st.data())
def test_mutated_batches_raise_wire_error_or_are_read(data: st.DataObject) -> None:
    whole = steady(0)
    raw = bytearray(Encoder(codec.RAW).encode([0, 2], [[(1, 7), (3, 3)], [(9, 7), (3, 3)]], [0, 0]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    payload = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    try:
        rows = unpack(replace(whole, n=2, codec=codec.RAW, payload=payload))
    except WireError:
        return
    assert len(rows.ticks) == 2
