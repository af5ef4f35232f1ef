"""Groups from nothing whose healthy members differ for good."""

import numpy as np

from bench.accuracy.cold_starts import ColdStart, alarms


def test_after_a_cold_start_the_slow_member_is_named_and_none_that_differs_for_good() -> None:
    """Version 19 named nine healthy ones of 768 here."""
    start = ColdStart(768, 0.1, "normal", busy=True)
    assert alarms(start, (3.0,), np.random.default_rng(1)).keys() == {0}
