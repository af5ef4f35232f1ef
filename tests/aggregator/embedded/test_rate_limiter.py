"""How much a client of the built-in broker may send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.embedded.rate_limiter import (
    BYTES_AT_ONCE,
    BYTES_PER_SECOND,
    PACKETS_AT_ONCE,
    PACKETS_PER_SECOND,
    Allowance,
)

LARGEST = 4_300_000


@given(st.lists(st.tuples(st.integers(2, LARGEST), st.floats(0, 10)), max_size=200))
def test_who_waits_as_told_sends_no_more_than_the_rate(packets: list[tuple[int, float]]) -> None:
    now, sent = 0.0, 0
    allowance = Allowance("cn-7", now)
    for size, pause in packets:
        now += max(allowance.wait_seconds(now), 0.0) + pause
        assert allowance.wait_seconds(now) <= 1e-6
        allowance.spend(size, now)
        sent += size
        assert sent <= BYTES_AT_ONCE + BYTES_PER_SECOND * now + LARGEST + 1


def test_small_packets_are_limited_by_number_and_a_pause_makes_up_for_it() -> None:
    allowance = Allowance("cn-7", 0.0)
    for _ in range(round(PACKETS_AT_ONCE)):
        assert allowance.wait_seconds(0.0) <= 0
        allowance.spend(2, 0.0)
    allowance.spend(2, 0.0)
    assert allowance.wait_seconds(0.0) == pytest.approx(1 / PACKETS_PER_SECOND)
    assert allowance.wait_seconds(1.0) < 0
    allowance.spend(2, 1000.0)
    for _ in range(round(PACKETS_AT_ONCE)):
        allowance.spend(2, 1000.0)
    assert allowance.wait_seconds(1000.0) == pytest.approx(1 / PACKETS_PER_SECOND)
