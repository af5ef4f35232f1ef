import numpy as np
import pytest

from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.metrics.shares import STRENGTH
from tests.aggregator.metrics.derived import derive

HARMLESS = 0.01


def test_slow_are_the_upper_four_buckets_of_eight() -> None:
    rises = {f"read_exe_{bucket}": 10 + bucket for bucket in range(8)}
    metric = SOURCES["lwfs"].metrics["read_exe_slow"]
    found = derive(SOURCES["lwfs"], rises)
    slow, every = 14 + 15 + 16 + 17, sum(range(10, 18))
    assert found["read_exe_slow:events"] == slow
    assert found["read_exe_slow:trials"] == every
    columns = {
        name: np.array([[found[name]], [0.0]]) for name in ("read_exe_slow:events", "read_exe_slow:trials")
    }
    mine, idle = metric.values("read_exe_slow", columns, 1)[:, 0]
    m = STRENGTH / HARMLESS
    assert mine == pytest.approx(slow / every + HARMLESS)  # alone it is the middle itself
    assert idle == pytest.approx(slow / every * m / m + HARMLESS)


def test_the_queue_is_that_which_requests_met() -> None:
    found = derive(SOURCES["lwfs"], {"queue_samples": 4, "queue_length_sum": 30, "write_exe_0": 4_000})
    assert found["queue_length"] == 7.5
    assert found["load.operations"] == 4_000.0
