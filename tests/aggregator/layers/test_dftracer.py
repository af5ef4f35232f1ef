"""Bytes of DFTracer's events: items, buffers and failures, against a plain parse of the same JSON."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.layers.columns import OTHER
from laggard_aggregator.layers.readers.open_recording import open_recording
from tests.aggregator.layers.analysed import Analysed, analysed

FAILED = 2**64 - 1
"""-1 of a call that returns a size without sign."""


def event(i: int, name: str, category: str, args: dict[str, Any]) -> str:
    """A line of the trace."""
    values = {"id": i, "name": name, "cat": category, "pid": 1, "tid": 1, "ts": 10**15 + i * 1000, "dur": 500}
    return json.dumps(values | {"ph": "X", "args": {"level": 1, "fhash": 5, **args}}, separators=(",", ":"))


def of(path: Path, *calls: tuple[str, str, dict[str, Any]]) -> Analysed:
    """The report of a trace with these calls."""
    lines = [event(i, *call) for i, call in enumerate(calls)]
    (path / "t.pfw").write_text("[\n" + "\n".join(lines) + "\n]\n")
    return analysed(path / "t.pfw")


@pytest.mark.parametrize("ret", [-1, FAILED, "-1"])
def test_failed_calls_move_nothing(tmp_path: Path, ret: int | str) -> None:
    good: dict[str, Any] = {"count": 4096, "ret": 4096}
    bad: dict[str, Any] = {"count": 4096, "ret": ret}
    found = of(tmp_path, *[("read", "POSIX", args) for args in (good, bad) * 5])
    assert found.layer("POSIX")["completed_bytes"] == found.layer("POSIX")["bytes"] == 5 * 4096
    assert found.layer("POSIX")["short"] == 0
    assert "5 reads and writes failed, and moved nothing" in found.remarks


def test_items_are_not_bytes(tmp_path: Path) -> None:
    calls = [("fread", "STDIO", {"size": 1 << 20, "count": 1, "ret": 1})] * 10
    short = ("fwrite", "STDIO", {"size": 8, "count": 1000, "ret": 900})
    found = of(tmp_path, *calls, short).layer("STDIO")
    assert (found["bytes"], found["completed_bytes"]) == ((10 << 20) + 8000, (10 << 20) + 7200)
    assert found["short"] == 1


def test_items_of_unknown_size_are_told(tmp_path: Path) -> None:
    unknown, known = (
        ("fread", "STDIO", {"count": 7, "ret": 7}),
        ("fread", "STDIO", {"size": 2, "count": 7, "ret": 7}),
    )
    found = of(tmp_path, unknown, known)
    assert found.layer("STDIO")["completed_bytes"] == 14
    assert "1 calls of fread and fwrite do not tell the size" in found.remarks


def test_impossible_products_are_left_out(tmp_path: Path) -> None:
    huge = ("fread", "STDIO", {"size": 2**40, "count": 2**40, "ret": 2**40})
    found = of(tmp_path, huge, ("fread", "STDIO", {"size": 2, "count": 7, "ret": 7}))
    assert found.layer("STDIO")["completed_bytes"] == 14
    assert "1 requests with impossible times or ranges were left out" in found.remarks


CALLS = st.tuples(
    st.sampled_from(
        [
            "read",
            "write",
            "pread",
            "pwrite64",
            "readv",
            "pwritev",
            "fread",
            "fwrite",
            "fread_unlocked",
            "open",
        ]
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "size": st.integers(0, 10**6),
            "count": st.integers(0, 10**6),
            "ret": st.sampled_from([-1, FAILED, -22]) | st.integers(0, 10**6),
            "offset": st.integers(0, 10**9),
        },
    ),
    st.booleans(),
)


def moved(name: str, args: dict[str, int]) -> tuple[int, int] | None:
    """Bytes asked for, or 0, and moved, or -1; None for a call that moved none, or an unknown number."""
    ret, count = args.get("ret"), args.get("count")
    if name == "open" or (ret is not None and (ret < 0 or ret == FAILED)):
        return None
    if name.startswith("f"):
        if "size" not in args:
            return None
        ret = None if ret is None else ret * args["size"]
        count = None if count is None else count * args["size"]
    if "v" in name:
        count = None
    return (ret or 0) if count is None else count, -1 if ret is None else ret


@given(st.lists(CALLS, min_size=1, max_size=30))
def test_against_a_plain_parse(calls: list[tuple[str, dict[str, int], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.pfw"
        lines = []
        for i, (name, args, as_text) in enumerate(calls):
            shown: dict[str, Any] = {key: str(value) if as_text else value for key, value in args.items()}
            lines.append(event(i, name, "C", shown))
        path.write_text("\n".join(lines) + "\n")
        (layer,) = open_recording([path]).layers
    columns = layer.requests
    expected = [moved(name, args) for name, args, _ in calls]
    assert (columns.operation == OTHER).tolist() == [each is None for each in expected]
    assert list(zip(columns.size.tolist(), columns.done.tolist(), strict=True)) == [
        each or (0, -1) for each in expected
    ]
