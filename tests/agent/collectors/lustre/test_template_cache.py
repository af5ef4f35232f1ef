"""The fast way of reading a file against its pure parser."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laggard_agent.collectors.lustre.parse import (
    Parsed,
    parse_histograms,
    parse_import,
    parse_job,
    parse_stats,
)
from laggard_agent.collectors.lustre.template_cache import Found, Parse, Shapes
from tests.support.thorough import examples

STATS = b"""snapshot_time 1510950459.772792457 secs.nsecs
start_time 1510950000.1 secs.nsecs
read 18 samples [usecs] 69 1348857 110282569237 8342874290406023
statfs 5 samples [reqs]
statfs 6 samples [reqs]
op2 7 samples [reqs]
"""
BRW = b"""snapshot_time: 1.2 secs.nsecs
pending pages: 4

 read | write
I/O time (1/1000s) ios % cum % | ios % cum %
4: 1 2 3 | 4 5 6
8K: 1 2 3 | 4 5 6
"""
JOB = b"""  snapshot_time: 15
  read: { samples: 1, unit: bytes, min:12345678, max:87654321, sum: 9 }
  punch: { samples: 1, unit: reqs }
"""


def summed(parsed: Parsed) -> dict[str, int]:
    """What the parser found, a name that is there twice added up."""
    found: dict[str, int] = {}
    for field, value in zip(parsed.fields, parsed.values, strict=True):
        found[field.name] = found.get(field.name, 0) + value
    return {name: value % 2**64 for name, value in found.items()}


def assert_same(found: Found, parsed: Parsed) -> None:
    shape, values = found
    assert dict(zip((f.name for f in shape.fields), values, strict=True)) == summed(parsed)
    assert len(shape.leftovers) == len(parsed.leftovers)
    assert shape.complete == parsed.complete


@pytest.mark.parametrize(("parse", "text"), [(parse_stats, STATS), (parse_histograms, BRW), (parse_job, JOB)])
@settings(max_examples=30)
@given(st.data())
def test_other_numbers_in_a_known_text(parse: Parse, text: bytes, data: st.DataObject) -> None:
    shapes = Shapes(parse)
    for _ in range(4):
        other = re.sub(
            rb"\d+", lambda _: b"%d" % data.draw(st.integers(0, 2**64 - 1) | st.integers(0, 30)), text
        )
        assert_same(shapes.read(other), parse(other))


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """One of the texts with something cut out and something put in."""
    text = draw(st.sampled_from([STATS, BRW, JOB]))
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.binary(max_size=4)) + text[at + draw(st.integers(0, 6)) :]


@settings(max_examples=examples(50))
@given(st.lists(changed(), max_size=6, unique_by=lambda text: text.translate(None, b"0123456789 \t")))
@example([b"8: 1 2 3", b"8K: 1 2 3", b"8K 1 2 3"])
def test_texts_of_different_skeletons_do_not_disturb_each_other(texts: list[bytes]) -> None:
    for parse in (parse_stats, parse_histograms, parse_job):
        shapes = Shapes(parse)
        for text in (*texts, *texts):
            assert_same(shapes.read(text), parse(text))


def test_bins_belong_to_the_shape() -> None:
    shapes = Shapes(parse_histograms)
    for text in (BRW, BRW.replace(b"8K:", b"16K:"), BRW.replace(b"4:", b"2:"), BRW):
        assert_same(shapes.read(text), parse_histograms(text))


def test_one_skeleton_with_more_and_with_fewer_numbers() -> None:
    """Blanks are no part of a skeleton: these differ in nothing else."""
    texts = [BRW, BRW.replace(b"4 5 6", b"4 5"), BRW.replace(b"1 2 3 | 4 5 6", b"1 2 3 | 4 5 6 7")]
    shapes = Shapes(parse_histograms)
    for text in (*texts, *reversed(texts), *texts):
        found = shapes.read(text)
        assert_same(found, parse_histograms(text))
        assert shapes.read(text)[0] is found[0]


def test_the_shape_is_the_same_object_while_only_numbers_change() -> None:
    shapes = Shapes(parse_stats)
    first, _ = shapes.read(STATS)
    second, values = shapes.read(STATS.replace(b"18 samples", b"19 samples"))
    assert second is first
    assert values[1] == 19


def test_a_number_of_thousands_of_digits() -> None:
    shapes = Shapes(parse_stats)
    shapes.read(STATS)
    text = STATS.replace(b"18 samples", b"9" * 10_000 + b" samples")
    assert_same(shapes.read(text), parse_stats(text))


def test_a_number_past_64_bits() -> None:
    shapes = Shapes(parse_stats)
    shapes.read(STATS)
    text = STATS.replace(b"18 samples", b"%d samples" % 2**64)
    assert_same(shapes.read(text), parse_stats(text))


def test_many_shapes_are_forgotten() -> None:
    shapes = Shapes(parse_stats)
    for n in range(1100):
        text = STATS + b"%s 1 samples [reqs]\n" % (b"x" * (n + 1))
        assert_same(shapes.read(text), parse_stats(text))


def test_plain() -> None:
    read = Shapes(parse_import).read_plain
    texts = [b"import:\n  name: a%d\n  state: FULL\n  inflight: %d\n" % (n, n) for n in (1, 2)]
    (one, _), (two, values) = map(read, texts)
    assert one is two
    assert values == (9, 2)
    text = b"import:\n state: FULL\n nonsense"
    assert_same(read(text), parse_import(text))
