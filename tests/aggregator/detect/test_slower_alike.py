"""Members that are slow together under a load alike: none of them is slow by itself."""

import numpy as np
import pytest

from laggard_aggregator.detect.laggard.ahead import slower_alike

TICKS = 5


def loads_of(operations: list[float], size: float = 4096.0) -> dict[str, np.ndarray]:
    rows = np.log(np.array(operations))[:, None] * np.ones(TICKS)
    return {"operations": rows, "request_bytes": np.full(rows.shape, np.log(size))}


BUSY = loads_of([10.0] * 8 + [200.0, 220.0, 240.0, 260.0])


def test_a_job_s_members_are_as_slow_as_each_other() -> None:
    slower = np.array([0.0] * 8 + [1.0, 1.1, 1.2, 1.3])
    assert slower_alike(slower, BUSY)[8:] == pytest.approx([1.2, 1.2, 1.1, 1.1])
    assert not slower_alike(slower, BUSY)[:8].any()


def test_one_that_is_slower_than_those_of_its_job_is_excused_for_no_more_than_theirs() -> None:
    slower = np.array([0.0] * 8 + [0.0, 0.1, 0.0, 1.1])
    assert not slower_alike(slower, BUSY).any()
    assert slower_alike(slower + 0.7 * (np.arange(12) >= 8), BUSY)[11] == pytest.approx(0.7)


def test_two_others_tell_nothing_and_another_size_is_no_load_alike() -> None:
    slower = np.array([0.0] * 9 + [1.0] * 3)
    assert not slower_alike(slower, loads_of([10.0] * 9 + [200.0] * 3)).any()
    other = loads_of([10.0] * 8 + [200.0] * 4)
    other["request_bytes"][8:, :] += np.arange(4)[:, None]
    assert not slower_alike(np.array([0.0] * 8 + [1.0] * 4), other).any()


def test_where_operations_are_unknown_it_tells_nothing() -> None:
    assert not slower_alike(np.ones(12), {"throughput": np.zeros((12, TICKS))}).any()
