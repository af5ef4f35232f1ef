"""`laggard` where it also knows how long components were busy for each I/O: waiting told from slowness."""

import numpy as np
import pytest

from laggard_aggregator.detect.laggard.load import MAX_LOG_DEVIATION, SATURATED_BUSY_SHARE, steadiness
from tests.aggregator.detect.courses import (
    SHIFT,
    ComponentHistory,
    Values,
    autocorrelated,
    course_of,
    healthy,
    slowed,
    windows_of,
)

ROWS, TICKS, SINCE = 12, 1500, 600


def served(seed: int, noise: float = 0.1) -> Values:
    """Milliseconds of service for an I/O, of components that serve one at a time."""
    rng = np.random.default_rng(seed)
    times: Values = 4.0 * np.exp(autocorrelated(rng, ROWS, TICKS, 0.3, noise))
    return times


def judged(waits: Values, service: Values | None, operations: Values | float = 500.0) -> ComponentHistory:
    """`waits` and `service` in ms; each did `operations` in an interval of 15 s."""
    done = np.broadcast_to(np.asarray(operations, dtype=np.float64), waits.shape)
    load = {"operations": done}
    if service is not None:
        load["busy_share"] = np.minimum(service * done / 15_000.0, 1.0)
    return course_of(windows_of(waits, load))


def test_slowness_that_waiting_hides_is_found_in_service_time() -> None:
    waits = slowed(healthy(1, ROWS, TICKS, noise=0.6, rho=0.8), {4: 1.4}, SINCE)
    soon = slice(0, SINCE // SHIFT + 8)
    assert not np.array(judged(waits, None).alarms)[soon].any()
    course = judged(waits, slowed(served(1), {4: 1.4}, SINCE))
    assert course.alarmed == {4}
    assert np.array(course.alarms)[soon, 4].any()


@pytest.mark.parametrize("seed", range(3))
def test_an_episode_that_fills_half_of_two_windows_is_not_clear(seed: int) -> None:
    waits, service = healthy(seed, ROWS, TICKS), served(seed)
    for values in (waits, service):
        values[4, SINCE - SHIFT // 2 + 3 : SINCE + SHIFT // 2 - 3] *= 4.0
    course = judged(waits, service)
    assert sum(verdicts.anomalous[4] for verdicts in course.verdicts) >= 2
    assert not any(verdicts.clear[4] for verdicts in course.verdicts if verdicts.clear is not None)


def test_a_spell_of_waiting_with_normal_service_is_no_fault() -> None:
    waits = healthy(2, ROWS, TICKS)
    waits[3, SINCE : SINCE + 3 * SHIFT] *= 6.0
    assert judged(waits, None).alarmed == {3}
    assert not judged(waits, served(2)).alarmed


def test_endless_waiting_in_a_queue_that_drains_is_no_fault() -> None:
    """As where a hot file lies: its readers come in crowds, and between them there is nothing to wait for."""
    waits = healthy(3, ROWS, TICKS)
    waits[3, SINCE:] *= 8.0
    waits[3, SINCE::10] /= 8.0
    assert judged(waits, None).alarmed == {3}
    assert not judged(waits, served(3)).alarmed


def test_lulls_with_little_io_do_not_hide_slow_service() -> None:
    """Most intervals hold a tenth of the I/O, and its service times vary the more; the full ones tell."""
    lull = np.random.default_rng(9).random((1, TICKS)) < 0.7
    service = slowed(np.where(lull, served(9, 0.7), served(9, 0.05)), {2: 1.25}, SINCE)
    waits = healthy(9, ROWS, TICKS, noise=0.6, rho=0.8) * service
    soon = slice(0, SINCE // SHIFT + 8)
    course = judged(waits, service, np.where(lull, np.full((ROWS, 1), 50.0), 500.0))
    assert course.alarmed == {2}
    assert np.array(course.alarms)[soon, 2].any()


def kept_full(waits: Values, row: int, times: float) -> Values:
    """`waits` with so much more, always the same, as a program adds that keeps requests in flight."""
    more = waits.copy()
    more[row, SINCE:] += (times - 1.0) * np.median(waits)
    return more


def by_size(seed: int, factors: dict[int, float]) -> ComponentHistory:
    """Disks on which jobs read 256 KiB at a time, a third of them in turn: 9.8 ms; else 4 KiB, 8.0 ms."""
    turn = np.arange(TICKS) // 300 + np.arange(ROWS)[:, None]
    size = np.where(turn % 3 == 0, 262_144.0, 4096.0)
    service = slowed((8.0 + size / 150_000.0) * served(seed, 0.05) / 4.0, factors, SINCE)
    waits = service * healthy(seed, ROWS, TICKS, noise=0.2, rho=0.4) / 4.0
    load = {"operations": np.full(size.shape, 600.0), "request_bytes": size}
    return course_of(windows_of(waits, {**load, "busy_share": service * 600.0 / 15_000.0}))


@pytest.mark.parametrize("seed", range(3))
def test_larger_requests_are_served_for_longer_and_that_is_no_fault(seed: int) -> None:
    assert not by_size(seed, {}).alarmed
    assert by_size(seed, {7: 1.3}).alarmed == {7}


def test_many_small_requests_are_no_idleness() -> None:
    """Half of the members read 4 KiB at a time, the rest 1 MiB: a two hundredth of their bytes."""
    size = np.where(np.arange(ROWS) % 2 == 0, 4096.0, 1048576.0)[:, None] * np.ones((ROWS, TICKS))
    load = {"operations": np.full(size.shape, 900.0), "request_bytes": size, "throughput": size * 60.0}
    waits = slowed(healthy(6, ROWS, TICKS), {4: 2.0}, SINCE)
    course = course_of(windows_of(waits, load))
    assert np.all([verdicts.judged for verdicts in course.verdicts[1:]])
    assert course.alarmed == {4}


def test_endless_waiting_with_normal_service_is_found_and_told_in_full() -> None:
    """As where another program keeps a disk's queue full: its own requests are served in normal time."""
    course = judged(kept_full(healthy(3, ROWS, TICKS), 3, 30.0), served(3))
    assert course.alarmed == {3}
    assert course.verdicts[-1].severity[3] == pytest.approx(30.0, rel=0.3)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_longer_queue_that_varies_as_much_for_its_length_is_no_fault(seed: int) -> None:
    """As of a hot LUN in overload: ten times the wait all the time, of clients who come and go."""
    waits = healthy(seed, ROWS, TICKS, noise=0.3)
    hot = slowed(waits, {3: 10.0}, SINCE)
    assert judged(hot, None).alarmed == {3}
    assert not judged(hot, served(seed)).alarmed
    assert judged(kept_full(waits, 3, 10.0), served(seed)).alarmed == {3}


def queues(seed: int) -> Values:
    """Logs of the I/Os under way, the last one twenty times as many of a steady program's."""
    rng = np.random.default_rng(seed)
    found: Values = np.log(rng.gamma(4.0, 2.0, (ROWS, 30)) + 0.01)
    found[-1] = np.log(np.exp(found[-1]) + 160.0)
    return found


def test_steadiness_is_that_of_constant_requests_in_flight() -> None:
    everyone = np.ones(ROWS, dtype=np.bool_)
    for seed in range(20):
        found = steadiness(queues(seed), everyone)
        assert found.argmax() == ROWS - 1
        assert found[-1] > 0.5


@pytest.mark.parametrize("seed", [0, 1])
def test_steadiness_ignores_the_unit_of_queues_and_the_order_of_members(seed: int) -> None:
    queue, everyone = queues(seed), np.ones(ROWS, dtype=np.bool_)
    queue[2, :7] = np.nan
    found = steadiness(queue, everyone)
    assert steadiness(queue + np.log(1000.0), everyone) == pytest.approx(found)
    order = np.random.default_rng(seed).permutation(ROWS)
    assert steadiness(queue[order], everyone).tobytes() == found[order].tobytes()


def test_steadiness_of_unknown_empty_and_constant_queues_is_bounded() -> None:
    queue = np.full((ROWS, 30), np.nan)
    assert not steadiness(queue, np.ones(ROWS, dtype=np.bool_)).any()
    queue = queues(0)
    queue[0], queue[1], queue[2] = np.nan, -np.inf, 1.0
    found = steadiness(queue, np.ones(ROWS, dtype=np.bool_))
    assert found[0] == 0.0
    assert found[2] == MAX_LOG_DEVIATION
    assert (np.abs(found) <= MAX_LOG_DEVIATION).all()


def test_steadiness_of_many_constant_queues_is_none() -> None:
    everyone = np.ones(ROWS, dtype=np.bool_)
    assert not steadiness(np.ones((ROWS, 30)), everyone).any()
    queue = queues(0)
    queue[0] = queue[1] = 1.0
    assert steadiness(queue, everyone)[:2].tolist() == [MAX_LOG_DEVIATION] * 2


def test_a_queue_known_for_one_interval_is_not_called_steady() -> None:
    queue, everyone = queues(0), np.ones(ROWS, dtype=np.bool_)
    queue[:3, 1:] = np.nan
    assert not steadiness(queue, everyone)[:3].any()


@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_as_much_more_load_for_all_changes_no_verdict(scale: float) -> None:
    waits, operations = kept_full(healthy(6, ROWS, TICKS, noise=0.3), 5, 8.0), np.full((ROWS, TICKS), 400.0)
    service = served(6)
    one = judged(waits, service, operations)
    other = judged(waits, service / scale, operations * scale)  # as busy as before
    assert one.alarmed == {5}
    assert other.alarms == one.alarms


def test_peers_that_differ_by_eight_per_cent_in_service_may_wait_half_as_long_again() -> None:
    service = slowed(served(4, 0.06), {5: 1.08})
    assert not judged(slowed(healthy(4, ROWS, TICKS, 0.1), {5: 1.3}), service).alarmed


def test_less_to_serve_at_once_is_not_slowness() -> None:
    """A device that serves many I/Os at once is as busy with few: not slow while its latency is normal."""
    service = slowed(served(5), {2: 3.0})
    operations = slowed(np.full((ROWS, TICKS), 1500.0), {2: 1 / 3})
    assert not judged(healthy(5, ROWS, TICKS), service, operations).alarmed


def test_a_group_that_is_always_busy_is_judged_by_latency_alone() -> None:
    waits = slowed(healthy(6, ROWS, TICKS), {1: 1.5}, SINCE)
    saturated = np.full((ROWS, TICKS), 15_000.0 / 500.0 * (SATURATED_BUSY_SHARE + 0.02))
    one, other = judged(waits, saturated), judged(waits, None)
    assert one.alarmed == {1}
    assert one.score.tobytes() == other.score.tobytes()


def test_a_device_that_serves_many_at_once_is_judged_by_latency_alone() -> None:
    """Busy nearly all the time, and less for an I/O the more there are: being slow hardly shows in that."""
    rng = np.random.default_rng(7)
    under_way = np.exp(0.4 + autocorrelated(rng, ROWS, TICKS, 0.5, 0.5))
    waits = slowed(healthy(7, ROWS, TICKS), {1: 1.5}, SINCE)
    operations = under_way * 15_000.0 / healthy(7, ROWS, TICKS)
    busy = 1.0 - np.exp(-operations * waits / 15_000.0)
    one = judged(waits, busy * 15_000.0 / operations, operations)
    assert one.alarmed == {1}
    assert one.score.tobytes() == judged(waits, None, operations).score.tobytes()


def test_busy_time_that_tells_nothing_is_not_believed() -> None:
    """As of counters that do not move with the work: `await` alone decides, and at once."""
    waits = slowed(healthy(8, ROWS, TICKS), {2: 1.2, 7: 1.6}, SINCE)
    still = np.full((ROWS, TICKS), 20.0)
    one = judged(waits, still)
    assert one.alarmed == {2, 7}
    assert one.score.tobytes() == judged(waits, None).score.tobytes()
