from collections import Counter

import pytest

from laggard_agent.collectors.interface import Reading
from laggard_agent.sampling.batcher import Batcher, Dictionary, EncodedBatch, splay_ns
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_COMPONENTS
from laggard_common.wire.schema import Component, Field, FieldKind
from tests import naive_wire
from tests.support.builders.trees import FIELDS, components

SECOND = 10**9
START = 1_700_000_000 * SECOND  # a multiple of 5 s


def reading(
    tick: int, cs: tuple[Component, ...], rows: list[Row], fields: tuple[Field, ...] = FIELDS
) -> tuple[int, Reading]:
    at = START + tick * SECOND
    return at, Reading("s", fields, at + 150_000, cs, rows)


def batcher(phase: int = 0, ticks: int = 5, dictionary: Dictionary | None = None) -> Batcher:
    return Batcher("s", SECOND, ticks, phase_ticks=phase, dictionary=dictionary)


def decoded(batch: EncodedBatch) -> naive_wire.NaiveBatch:
    return naive_wire.decode(
        Envelope(
            Kind.COUNTERS,
            "n",
            "s",
            bytes(16),
            0,
            0,
            batch.t0_ns,
            batch.dt_ns,
            batch.n,
            batch.codec,
            batch.payload,
        )
    )


def test_a_batch_is_full_after_its_ticks_at_the_nodes_phase() -> None:
    one = components("x")
    for phase, expected in ((0, [5, 5, 5]), (2, [3, 5, 5]), (4, [1, 5, 5])):
        gather = batcher(phase)
        sizes = [b.n for t in range(15) for b in gather.add(*reading(t, one, [(t, 0)]))]
        assert sizes == expected
        assert sum(b.n for b in gather.flush()) + sum(expected) == 15


def test_what_was_read_is_in_it() -> None:
    gather = batcher()
    two = components("x", "y")
    closed = [b for t in range(5) for b in gather.add(*reading(t, two, [(t, 7), (9, 9)]))]
    (batch,) = closed
    assert (batch.t0_ns, batch.dt_ns, batch.n, batch.source) == (START, SECOND, 5, "s")
    assert batch.dictionary == Dictionary(0, 1, FIELDS, two)
    values = decoded(batch)
    assert values.indexes == [0, 1]
    assert values.idle == 1
    assert [tick[0] for tick in values.values] == [[t, 7] for t in range(5)]
    assert values.read_ns == [START + t * SECOND + 150_000 for t in range(5)]


def test_a_missing_tick_closes_early() -> None:
    gather = batcher()
    one = components("x")
    closed = [b for t in (0, 1, 3, 4, 5) for b in gather.add(*reading(t, one, [(t, 0)]))]
    assert [(b.t0_ns, b.n) for b in closed] == [(START, 2), (START + 3 * SECOND, 2)]


def test_a_component_that_comes_closes_early_and_raises_the_epoch() -> None:
    gather = batcher()
    a, b = components("a"), components("b", "a")
    assert gather.add(*reading(0, a, [(1, 1)])) == []
    (first,) = gather.add(*reading(1, b, [(2, 2), (3, 3)]))
    (second,) = gather.flush()
    assert (first.n, first.dictionary.epoch) == (1, 1)
    assert (second.n, second.dictionary.epoch) == (1, 2)
    assert [c.id for c in second.dictionary.components] == ["a", "b"]
    values = decoded(second)
    assert dict(zip(values.indexes, values.values[0], strict=True)) == {0: [3, 3], 1: [2, 2]}


def test_one_that_goes_keeps_its_place_for_when_it_returns() -> None:
    gather = batcher(ticks=1)
    epochs = []
    places = []
    for t, names in enumerate((["a", "b"], ["b"], ["a", "b"], ["b", "a"])):
        (batch,) = gather.add(*reading(t, components(*names), [(ord(n), 0) for n in names]))
        epochs.append(batch.dictionary.epoch)
        values = decoded(batch)
        places.append({place: row[0] for place, row in zip(values.indexes, values.values[0], strict=True)})
    assert epochs == [1, 1, 1, 1]
    assert places == [{0: 97, 1: 98}, {1: 98}, {0: 97, 1: 98}, {0: 97, 1: 98}]


def test_a_new_name_of_the_day_raises_the_epoch_and_keeps_the_place() -> None:
    gather = batcher(ticks=1)
    gather.add(*reading(0, (Component("wwn-1", "sda"), Component("wwn-2", "sdb")), [(1, 1), (2, 2)]))
    (batch,) = gather.add(*reading(1, (Component("wwn-2", "sda"),), [(2, 2)]))
    assert batch.dictionary.epoch == 2
    assert batch.dictionary.components == (Component("wwn-1", "sda"), Component("wwn-2", "sda"))
    assert decoded(batch).indexes == [1]


def test_a_value_that_appears_closes_early() -> None:
    gather = batcher()
    one = components("x")
    gather.add(*reading(0, one, [(1, None)]))
    gather.add(*reading(1, one, [(2, None)]))
    (first,) = gather.add(*reading(2, one, [(3, 4)]))
    (second,) = gather.flush()
    assert decoded(first).values == [[[1, None]], [[2, None]]]
    assert decoded(second).values == [[[3, 4]]]


def test_fields_are_added_at_the_end_and_matched_by_name() -> None:
    gather = batcher(ticks=1)
    one = components("x")
    gather.add(*reading(0, one, [(1, 2)]))
    (batch,) = gather.add(*reading(1, one, [(30, 20)], (Field("c"), Field("b"))))
    assert [f.name for f in batch.dictionary.fields] == ["a", "b", "c"]
    assert batch.dictionary.epoch == 2
    assert decoded(batch).values == [[[None, 20, 30]]]


def test_a_field_that_means_something_else_begins_a_new_generation() -> None:
    gather = batcher(ticks=1)
    one = components("x")
    gather.add(*reading(0, one, [(1, 2)]))
    other = (Field("a", FieldKind.GAUGE), Field("b"))
    (batch,) = gather.add(*reading(1, one, [(3, 4)], other))
    assert batch.dictionary == Dictionary(1, 1, other, one)


def test_more_components_than_a_dictionary_holds_begin_a_new_generation() -> None:
    many = components(*(f"c{i}" for i in range(MAX_COMPONENTS - 1)))
    gather = batcher(ticks=1, dictionary=Dictionary(0, 7, FIELDS, many))
    present = (*many[:4000], *components("new"))
    (batch,) = gather.add(*reading(0, present, [(1, 1)] * 4001))
    assert batch.dictionary.generation == 0
    present = (*many[:4000], *components("newer"))
    (batch,) = gather.add(*reading(1, present, [(1, 1)] * 4001))
    assert batch.dictionary == Dictionary(1, 1, FIELDS, present)


def test_many_absent_components_begin_a_new_generation() -> None:
    """Each job of a node is a component for a while; the dictionary is sent with each new one."""
    gather = batcher(ticks=1)
    generations, longest = set(), 0
    for number in range(1000):
        present = components(f"job{number}", f"job{number + 1}")
        (batch,) = gather.add(*reading(number, present, [(1, 1), (2, 2)]))
        assert {batch.dictionary.components[at] for at in decoded(batch).indexes} == set(present)
        generations.add(batch.dictionary.generation)
        longest = max(longest, len(batch.dictionary.components))
    assert generations == {0, 1, 2, 3}
    assert longest == 258
    gather = batcher(ticks=1)
    many = components(*map(str, range(2000)))
    gather.add(*reading(0, many, [(1, 1)] * 2000))
    (batch,) = gather.add(*reading(1, many[:500], [(1, 1)] * 500))
    assert (batch.dictionary.generation, len(batch.dictionary.components)) == (0, 2000)


def test_the_dictionary_of_an_earlier_run_goes_on() -> None:
    old = Dictionary(0, 4, FIELDS, components("a", "b"))
    gather = batcher(ticks=1, dictionary=old)
    (batch,) = gather.add(*reading(0, components("b"), [(1, 2)]))
    assert batch.dictionary is old
    assert decoded(batch).indexes == [1]


def test_a_batch_that_gets_no_more_readings_expires() -> None:
    gather = batcher(phase=1)
    gather.add(*reading(0, components("x"), [(1, 1)]))
    assert gather.expire(START + 5 * SECOND) == []
    (batch,) = gather.expire(START + 6 * SECOND)
    assert batch.n == 1
    assert gather.expire(START + 7 * SECOND) == []


def test_a_source_without_rows_makes_no_batch() -> None:
    gather = batcher()
    assert gather.add(*reading(0, (), [])) == []
    assert gather.flush() == []


def test_a_reading_far_from_its_tick_has_the_largest_offset() -> None:
    gather = batcher(ticks=1)
    (batch,) = gather.add(START, Reading("s", FIELDS, START + 10**17, components("x"), [(1, 1)]))
    assert decoded(batch).read_ns == [START + (2**31 - 1) * 1000]


def test_of_too_many_components_the_first_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    many = components(*map(str, range(MAX_COMPONENTS + 10)))
    gather = batcher()
    batches = [b for t in range(5) for b in gather.add(*reading(t, many, [(t, 1)] * len(many)))]
    assert {len(b.dictionary.components) for b in batches} == {MAX_COMPONENTS}
    assert sum(b.n for b in batches) == 5
    assert decoded(batches[0]).indexes == list(range(MAX_COMPONENTS))
    assert [r.message for r in caplog.records] == ["s has 16394 components: only the first 16384 are sampled"]


def test_a_dictionary_with_long_names_begins_anew_before_it_is_too_large_to_travel() -> None:
    gather = batcher(ticks=1)
    generations = set()
    for t in range(20):
        some = components(*(f"{t}-{i:0240d}" for i in range(1000)))
        (batch,) = gather.add(*reading(t, some, [(t, 1)] * 1000))
        generations.add(batch.dictionary.generation)
        assert sum(len(c.id) + len(c.name) for c in batch.dictionary.components) < 4 * 1024 * 1024
        assert len(decoded(batch).indexes) == 1000
    assert len(generations) == 4


def test_five_thousand_nodes_publish_all_over_the_batch_interval() -> None:
    batch_ns = 5 * SECOND
    splays = [splay_ns("site", f"node-{i}", batch_ns) for i in range(5000)]
    assert all(0 <= splay < batch_ns for splay in splays)
    tenths = Counter(splay * 10 // batch_ns for splay in splays)
    assert min(tenths[i] for i in range(10)) > 400
    assert max(tenths.values()) < 600


def test_a_node_keeps_its_splay_and_another_site_has_another() -> None:
    assert splay_ns("a", "oss-1", SECOND) == splay_ns("a", "oss-1", SECOND)
    assert splay_ns("a", "oss-1", SECOND) != splay_ns("b", "oss-1", SECOND)
