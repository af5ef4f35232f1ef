"""Node lists: every form, and hostile ones."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.records.hostlist import MAX_NODES, expand
from laggard_aggregator.jobs.records.model import JobDataError


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", ()),
        ("None assigned", ()),
        ("n1", ("n1",)),
        ("node[01,03-04],login1", ("node01", "node03", "node04", "login1")),
        ("r[1-2]n[09-10]-ib", ("r1n09-ib", "r1n10-ib", "r2n09-ib", "r2n10-ib")),
        ("a,b,a", ("a", "b")),
        ("n[099-101]", ("n099", "n100", "n101")),
    ],
)
def test_expands(text: str, nodes: tuple[str, ...]) -> None:
    assert expand(text) == nodes


@pytest.mark.parametrize(
    "text",
    [
        *(
            "n[1-100000000]",
            "n[1-999999999999]",
            "[1-1000][1-1000][1-1000]",
            "n[2-1]",
            "n[a-b]",
            "n[1",
            "n]1[",
        ),
        *("n[1-2-3]", "n[[1]]", "n 1,n2", "n\x00", "n\n", "x" * 300, f"n[1-{MAX_NODES}],m"),
        *(",".join(["n[1-9999]"] * 200_000), "n[1]" * 100_000 + "]"),
    ],
)
def test_refuses_hostile_lists(text: str) -> None:
    with pytest.raises(JobDataError):
        expand(text)


@given(st.sets(st.integers(0, 9999), max_size=50), st.integers(4, 6))
def test_ranges_are_the_numbers(numbers: set[int], digits: int) -> None:
    text = ",".join(f"{n:0{digits}d}" for n in sorted(numbers))
    found = expand(f"n[{text}]") if numbers else ()
    assert found == tuple(f"n{n:0{digits}d}" for n in sorted(numbers))


@given(st.text(alphabet="n[]0123-, \n", max_size=40))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    with contextlib.suppress(JobDataError):
        assert len(set(expand(text))) == len(expand(text)) <= MAX_NODES
