"""The parser of one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.lwfs.trace import Trace, is_trace, parse_trace
from tests.support.builders.lwfs import FIXTURES

RELEASED = b"192.0.2.7 [2018-02-25 18:00:12]  [Trace]: Meta exe: 1 2 3 4 5 6 7 8 2018-02-25T10:00:12.544Z"
OWN = b"[2018-02-25 18:00:12] N [sw-threads.c:93:record_log] [Trace]: Write wait: 1 2 3 4 5 6 7 8"
AT_MS = 1_519_552_812_544


def test_the_two_forms() -> None:
    assert parse_trace(RELEASED) == Trace("192.0.2.7", AT_MS, "meta_exe", (1, 2, 3, 4, 5, 6, 7, 8))
    assert parse_trace(OWN) == Trace("", None, "write_wait", (1, 2, 3, 4, 5, 6, 7, 8))
    assert parse_trace(OWN + b"\r") == parse_trace(OWN)


BLANKS = st.sampled_from([" ", "  ", "\t", " \t "])
OF_A_LOG = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["N ", "I ", "T "]),
        st.sampled_from(["", "[MSGID: 115034] "]),
        st.just("[sw-threads.c:85:record_log]"),
        st.sampled_from(["", " ", "  "]),
        st.sampled_from(["", "0-vol-server: ", "brick: "]),
    ),
)


@given(
    counts=st.lists(st.integers(0, 2**64 - 1), min_size=8, max_size=8),
    time=st.sampled_from(["2018-02-25 18:00:12", "2018-02-25T18:00:12", "2018-02-25 18:00:12.123456 +0000"]),
    head=st.just("") | OF_A_LOG,
    blanks=BLANKS,
    utc=st.sampled_from(["", "2018-02-25T10:00:12.544Z", "2018-02-25T18:00:12.544+08:00"]),
    end=st.sampled_from(["", " ", "\r", "\t\r"]),
)
def test_heads_and_blanks_of_any_release(
    counts: list[int], time: str, head: str, blanks: str, utc: str, end: str
) -> None:
    numbers = "".join(blanks + str(count) for count in counts)
    line = f"[{time}]{blanks}{head}[Trace]:{blanks}Read exe:{numbers}{blanks if utc else ''}{utc}{end}"
    assert parse_trace(line.encode()) == Trace("", AT_MS if utc else None, "read_exe", tuple(counts))


def test_a_queue() -> None:
    line = b"192.0.2.7 [2018-02-25 18:00:12]  [Trace]: queue length: 17 2018-02-25T10:00:12.544Z"
    assert parse_trace(line) == Trace("192.0.2.7", AT_MS, "queue", (17,))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b": 1 2", b": -1 2"),
        (b": 1 2", b": 1.5 2"),
        (b": 1 2", b": 1us 2"),
        (b": 1 2", b": 18446744073709551616 2"),
        (b": 1 2", b": 99999999999999999999999999 2"),
        (b" 7 8", b" 7"),
        (b" 7 8", b" 7 8 9"),
        (b"Meta", b"Beta"),
        (b"exe", b"sleep"),
        (b"12.544Z", b"12.544"),
        (b"02-25T10", b"02-31T10"),
        (b"2018-02-25T", b"0001-01-01T"),
        (b"192.0.2.7 ", b"192.0.2.7\x00 "),
        (b"192.0.2.7 ", b"a b "),
        (b"[Trace]", b"[Trace] [Trace]"),
    ],
)
def test_what_is_not_understood(old: bytes, new: bytes) -> None:
    line = RELEASED.replace(old, new)
    assert line != RELEASED
    assert is_trace(line)
    assert parse_trace(line) is None


def test_the_greatest_count_there_is() -> None:
    trace = parse_trace(RELEASED.replace(b": 1 2", b": 18446744073709551615 2"))
    assert trace is not None
    assert trace.counts[0] == 2**64 - 1


@pytest.mark.parametrize("line", [RELEASED, *(FIXTURES / "released.log").read_bytes().splitlines()])
def test_truncated_at_every_byte(line: bytes) -> None:
    for end in range(len(line)):
        trace = parse_trace(line[:end])
        # Only the whole time may be missing: that is how the server itself writes it.
        assert trace is None or trace.time_ms is None


@pytest.mark.parametrize(
    "line", [b"", b"\0" * 5000, bytes(range(256)) * 10, b"[Trace]:" * 5000, b" " * 60_000]
)
def test_garbage(line: bytes) -> None:
    assert parse_trace(line) is None
    assert parse_trace(RELEASED + line + b"x") is None
