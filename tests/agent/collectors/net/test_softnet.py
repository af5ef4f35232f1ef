"""/proc/net/softnet_stat: columns without names, of 32 bits, by CPU."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.collectors.net.parse import SOFTNET_FIELDS, Softnet, parse_softnet, rise
from laggard_common.wire.codec import Row
from tests.support.builders.net import FIXTURES, SOFTNET

MOST = 2**32


def line(*values: int) -> str:
    return " ".join(f"{value:08x}" for value in values) + "\n"


def cpu(number: int, processed: int, dropped: int = 0) -> str:
    return line(processed, dropped, *[0] * 10, number, 0, 0)


def rows(text: str) -> dict[str, Row]:
    found, odd = parse_softnet(text.encode())
    assert odd == []
    assert found is not None
    return found


def test_columns_are_taken_by_their_place() -> None:
    assert [field.name for field in SOFTNET_FIELDS] == [
        *("processed", "dropped", "time_squeeze", "received_rps", "flow_limit_count")
    ]
    assert rows(SOFTNET) == {"00000000": (185, 1, 2, 3, 4), "00000001": (0xFFFFFFF0, 0, 0, 0, 0)}


@pytest.mark.parametrize(
    ("capture", "cpus", "columns"), [("softnet_stat-6.18", 2, 5), ("softnet_stat-4.18", 4, 5), ("old", 1, 3)]
)
def test_kernels(capture: str, cpus: int, columns: int) -> None:
    text = line(*range(9)) if capture == "old" else (FIXTURES / f"{capture}.txt").read_text()
    found = rows(text)
    assert len(found) == cpus
    assert all(sum(value is not None for value in row) == columns for row in found.values())


def test_sums_go_on_over_a_wrap() -> None:
    total = Softnet()
    assert total.total(rows(cpu(0, MOST - 10, 5) + cpu(1, 100)))[:2] == (MOST + 90, 5)
    assert total.total(rows(cpu(0, 20, 6) + cpu(1, 101)))[:2] == (MOST + 121, 6)


def test_a_cpu_that_goes_and_comes_counts_nothing_twice() -> None:
    total = Softnet()
    total.total(rows(cpu(0, 10) + cpu(1, 1000)))
    assert total.total(rows(cpu(0, 12)))[0] == 1012
    assert total.total(rows(cpu(0, 12) + cpu(1, 1000)))[0] == 1012
    assert total.total(rows(cpu(0, 12) + cpu(1, 1003)))[0] == 1015


def test_without_numbers_of_cpus_a_lost_line_shifts_the_others() -> None:
    """Linux before 5.10: nothing is taken for the work of another CPU."""
    total = Softnet()
    total.total(rows(line(*[10] * 11) + line(*[5000] * 11) + line(*[20] * 11)))
    assert total.total(rows(line(*[10] * 11) + line(*[20] * 11)))[0] == 5030
    assert total.total(rows(line(*[11] * 11) + line(*[22] * 11)))[0] == 5033


@pytest.mark.parametrize(
    "text",
    ["", "\n", "0", "-0000001 00000002", "0000001g 00000000", "00000001  00000002", "1 2 3", "\0" * 80],
)
def test_other_shapes_are_not_guessed_at(text: str) -> None:
    assert not parse_softnet(text.encode())[0]


def test_truncated_anywhere() -> None:
    """A line cut between two numbers is shorter; one cut in a number is of another shape."""
    for end in range(len(SOFTNET)):
        found, _ = parse_softnet(SOFTNET[:end].encode())
        assert all(len(row) == len(SOFTNET_FIELDS) for row in found.values())


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    parse_softnet(data)


@given(
    bits=st.sampled_from([32, 64]),
    before=st.integers(0, 2**64 - 1),
    steps=st.lists(st.integers(0, 2**31 - 1)),
)
def test_rises_of_a_wrapping_counter_add_up(bits: int, before: int, steps: list[int]) -> None:
    values = [before % 2**bits]
    for step in steps:
        values.append((values[-1] + step) % 2**bits)
    assert [rise(after, then, bits) for then, after in pairwise(values)] == steps


@pytest.mark.parametrize(("after", "before", "bits"), [(3, 2**20, 32), (3, 2**40, 64), (0, 1, 32)])
def test_a_counter_that_began_anew_counts_from_nothing(after: int, before: int, bits: int) -> None:
    assert rise(after, before, bits) == after
