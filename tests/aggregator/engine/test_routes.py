"""Sets of counters that components lack have numbers of their own, however many counters there are."""

from itertools import combinations

import numpy as np
import pytest

from laggard_aggregator.engine.routes import ORIGIN_BITS, SET_BITS, _numbers


@pytest.mark.parametrize("count", [1, 42, 43, 76])
def test_sums_tell_sets_of_counters_apart(count: int) -> None:
    numbers = _numbers(count).tolist()
    sums = [sum(pair) for pair in combinations(numbers, 2)] + numbers
    assert len(set(sums)) == len(sums)
    assert min(numbers) > 0
    assert sum(numbers) < 1 << SET_BITS
    assert np.iinfo(np.int64).bits > ORIGIN_BITS + SET_BITS
