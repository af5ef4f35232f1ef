"""Which functions have a row of their own; and that nothing is left out of the sum."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.fnprofile.functions import Functions

MINUTE = 60 * 10**9
CPU_NS = 1_003_009  # of a sample, at 997 Hz


def totals(functions: Functions) -> dict[str, int]:
    """Samples by row."""
    for row in functions.rows:
        assert row[1] == int(row[0] or 0) * CPU_NS
    return {c.id: int(r[0] or 0) for c, r in zip(functions.components, functions.rows, strict=True)}


def test_who_gets_a_row() -> None:
    """4 ms within a minute; what has less counts with the rest of its program, if that is enough together."""
    made = Functions(100, CPU_NS)
    made.add({"a/i/hot": 4, "a/i/warm": 3, "a/i/cool": 2, "b/i/cold": 1}, 0)
    assert totals(made) == {"[others]/other": 1, "a/other": 5, "a/i/hot": 4}
    made.add({"a/i/warm": 3, "b/i/cold": 3, "a/i/hot": 1}, 10 * 10**9)
    assert totals(made) == {"[others]/other": 4, "a/other": 8, "a/i/hot": 5}
    made.add({"a/i/warm": 1, "b/i/cold": 1}, MINUTE)  # the minute is over
    assert totals(made) == {"[others]/other": 4, "a/other": 8, "a/i/hot": 5, "a/i/warm": 1, "b/i/cold": 1}


def test_who_gets_a_row_at_once() -> None:
    """250 ms are enough at any time; all others wait for the minute to be over, with what they have."""
    made = Functions(100, CPU_NS)
    made.add({"a/i/f": 9}, 0)
    made.add({"a/i/f": 9, "b/i/hog": 249, "b/i/g": 2, "c/i/h": 2}, 10 * 10**9)
    assert totals(made) == {"[others]/other": 253, "a/i/f": 18}
    made.add({"b/i/hog": 1, "b/i/g": 1, "c/i/h": 1}, 20 * 10**9)
    assert totals(made) == {"[others]/other": 255, "a/i/f": 18, "b/i/hog": 1}
    made.add({"b/i/hog": 300, "c/i/h": 1}, MINUTE)
    assert totals(made) == {"[others]/other": 255, "a/i/f": 18, "b/i/hog": 301, "c/i/h": 1}


def test_one_sample_of_a_low_frequency_is_enough() -> None:
    made = Functions(100, 10_000_000)
    made.add({"a/i/f": 1}, 0)
    assert [c.id for c in made.components] == ["[others]/other", "a/i/f"]


def test_rows_that_did_not_change_are_the_same_objects() -> None:
    made = Functions(100, CPU_NS)
    made.add({"a/i/f": 5, "a/i/g": 5}, 0)
    components, rows = made.components, made.rows
    made.add({"a/i/f": 5}, 1)
    assert made.components is components
    assert [new is old for new, old in zip(made.rows, rows, strict=True)] == [True, False, True]


def test_when_there_is_no_room() -> None:
    """Those with most samples get the rows; later ones get those of functions not seen for ten minutes."""
    made = Functions(4, CPU_NS)
    made.add({"a/i/f": 9, "a/i/g": 8, "a/i/h": 7, "a/i/i": 6}, 0)
    assert totals(made) == {"[others]/other": 6, "a/i/f": 9, "a/i/g": 8, "a/i/h": 7}
    made.add({"a/i/f": 1, "b/i/new": 20}, MINUTE)
    assert totals(made)["[others]/other"] == 26
    made.add({"a/i/f": 1, "b/i/new": 20, "b/i/newer": 30}, 11 * MINUTE)
    assert totals(made) == {"[others]/other": 26, "a/i/f": 11, "b/i/newer": 30, "b/i/new": 20}
    assert made.replaced == 2
    made.add({"a/i/g": 20}, 12 * MINUTE)
    assert totals(made)["[others]/other"] == 46


@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")).map(lambda pf: f"{pf[0]}/i/{pf[1]}"),
            st.integers(1, 9),
        ),
        max_size=20,
    ),
    st.integers(1, 12),
)
def test_nothing_is_left_out(vectors: list[dict[str, int]], most: int) -> None:
    """As long as no row is taken away, all rows together have all samples, and none falls."""
    made = Functions(most, CPU_NS)
    before: dict[str, int] = {}
    all_samples: Counter[str] = Counter()
    for i, vector in enumerate(vectors):
        made.add(vector, i * 20 * 10**9 // max(1, len(vectors) // 10))
        all_samples.update(vector)
        now = totals(made)
        assert len(now) <= max(most, 1)
        assert sum(now.values()) == sum(all_samples.values())
        assert all(now[name] >= count for name, count in before.items())
        before = now
