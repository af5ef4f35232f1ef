"""Devices as queues: waiting times against theory, both ways to simulate, the counters, the score."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy.queues.case import QueueCase, WrittenCase, write_case
from bench.accuracy.queues.counters import counters
from bench.accuracy.queues.device import CACHED_DISK, DISK, KIB, REORDERING_DISK, Floats, RequestMix
from bench.accuracy.queues.events import serve_events
from bench.accuracy.queues.fault import HEALTHY, QueueFault, queue_fault
from bench.accuracy.queues.judge import score
from bench.accuracy.queues.load import LOADS, LoadPlan, load_plan
from bench.accuracy.queues.requests import ServedRequests, completions, serve_open

SEED = (1, 2)
TIMES_MS = np.arange(1, 121) * 15_000.0


def small_plan(use: float = 0.3, seconds: int = 1800) -> LoadPlan:
    plan = LoadPlan(DISK, 2, seconds)
    plan.add_open([0, 1], [use, use], RequestMix((4 * KIB, 64 * KIB), 0.6))
    return plan


def slowed(factor: float) -> QueueFault:
    return QueueFault(frozenset({1}), (0.0, 600e3, 1200e3), (1.0, factor, 1.0))


def busy_ms(served: ServedRequests, begin_ms: float, end_ms: float) -> float:
    """The time in use from one moment to another."""
    values = counters(served, np.array([begin_ms, end_ms]))[:, -1]
    return float(values[1] - values[0])


def reference_completions(arrival_ms: Floats, service_ms: Floats) -> list[float]:
    free_ms, done = 0.0, []
    for arrival, service in zip(arrival_ms.tolist(), service_ms.tolist(), strict=True):
        free_ms = max(free_ms, arrival) + service
        done.append(free_ms)
    return done


@pytest.mark.parametrize(("kind", "squared_variation"), [("exponential", 1.0), ("constant", 0.0)])
def test_waiting_times_are_those_of_pollaczek_and_khinchine(kind: str, squared_variation: float) -> None:
    generator = np.random.default_rng(7)
    count, use, mean_ms = 1_000_000, 0.6, 5.0
    arrival_ms = np.cumsum(generator.exponential(mean_ms / use, count))
    service_ms = generator.exponential(mean_ms, count) if kind == "exponential" else np.full(count, mean_ms)
    waited_ms = completions(arrival_ms, service_ms) - arrival_ms - service_ms
    expected_ms = use * mean_ms * (1 + squared_variation) / 2 / (1 - use)
    assert waited_ms.mean() == pytest.approx(expected_ms, rel=0.03)


def test_completions_are_those_of_the_recursion() -> None:
    generator = np.random.default_rng(3)
    arrival_ms = np.cumsum(generator.exponential(5.0, 2000))
    service_ms = generator.exponential(4.5, 2000)
    assert completions(arrival_ms, service_ms) == pytest.approx(reference_completions(arrival_ms, service_ms))


@pytest.mark.parametrize("kind", ["x2", "intermittent", "tail"])
def test_events_and_sums_agree_on_open_loads(kind: str) -> None:
    fault = queue_fault(kind, [0, 0], 600, 1200, np.random.default_rng(1))
    pairs = zip(serve_open(small_plan(), fault, SEED), serve_events(small_plan(), fault, SEED), strict=True)
    for by_sums, by_events in pairs:
        assert by_sums.arrival_ms == pytest.approx(by_events.arrival_ms)
        assert by_sums.completion_ms == pytest.approx(by_events.completion_ms)
        assert np.array_equal(by_sums.size, by_events.size)
        assert np.array_equal(by_sums.is_read, by_events.is_read)


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_a_fault_slows_its_member_by_its_factor_and_no_other(factor: float) -> None:
    before = list(serve_open(small_plan(0.05), HEALTHY, SEED))
    after = list(serve_open(small_plan(0.05), slowed(factor), SEED))
    assert np.array_equal(before[0].completion_ms, after[0].completion_ms)
    in_fault = busy_ms(after[1], 600e3, 1200e3) / busy_ms(before[1], 600e3, 1200e3)
    assert in_fault == pytest.approx(factor, rel=0.03)
    assert busy_ms(after[1], 0.0, 600e3) == busy_ms(before[1], 0.0, 600e3)
    assert busy_ms(after[1], 1210e3, 1800e3) == busy_ms(before[1], 1210e3, 1800e3)


@pytest.mark.parametrize("load", LOADS)
def test_counters_of_each_load_never_fall_and_hold_all_requests(load: str) -> None:
    plan = load_plan(load, 8, 1800, np.random.default_rng(4))
    serve = serve_events if plan.needs_events else serve_open
    for served in serve(plan, HEALTHY, SEED):
        assert served.arrival_ms.size
        assert np.all(np.diff(served.arrival_ms) >= 0)
        values = counters(served, np.append(TIMES_MS, np.inf))
        assert np.all(np.diff(values, axis=0) >= 0)
        reads, writes, read_ms, write_ms, read_kib, write_kib, in_use_ms = values[-1].tolist()
        assert reads + writes == served.arrival_ms.size
        assert read_kib + write_kib == pytest.approx(served.size.sum() / KIB)
        assert in_use_ms <= read_ms + write_ms + 2


def test_time_in_use_is_counted_as_it_passes() -> None:
    served = ServedRequests(
        np.array([1000.0, 1005.0, 4000.0]),
        np.array([1010.0, 1020.0, 4500.0]),
        np.full(3, 8.0 * KIB),
        np.array([True, False, True]),
    )
    at = counters(served, np.array([500.0, 1004.9, 1015.0, 2000.0, 4250.0, 5000.0]))
    assert at[:, -1].tolist() == [0, 4, 15, 20, 270, 520]
    assert at[:, 0].tolist() == [0, 0, 1, 1, 1, 2]
    assert at[:, 2].tolist() == [0, 0, 10, 10, 10, 510]


def test_a_full_cache_lets_writes_wait_for_the_device() -> None:
    little, much = (
        LoadPlan(replace(CACHED_DISK, cache_bytes=cache), 1, 600, small_plan(0.3, 600).open_loads)
        for cache in (64.0 * KIB, 1e9)
    )
    little_write_ms, much_write_ms = (
        (served.completion_ms - served.arrival_ms)[~served.is_read].mean()
        for plan in (little, much)
        for served in serve_events(plan, HEALTHY, SEED)
    )
    assert much_write_ms < 0.13
    assert little_write_ms > 1.0


def test_a_disk_that_reorders_serves_a_backlog_in_less_time() -> None:
    in_order, reordered = (
        busy_ms(next(serve_events(plan, HEALTHY, SEED)), 0.0, 600e3)
        for device in (DISK, REORDERING_DISK)
        for plan in [LoadPlan(device, 2, 600, small_plan(0.6, 600).open_loads)]
    )
    assert 0.5 * in_order < reordered < 0.95 * in_order


@pytest.mark.parametrize("load", ["common", "jobs", "cache"])
def test_the_same_seed_gives_the_same_bytes(load: str, tmp_path: Path) -> None:
    written: list[bytes] = []
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (file,) = write_case(QueueCase(load, "x2", seed), folder, seconds=300).files
        written.append(file.read_bytes())
    assert written[0] == written[1]
    assert written[0] != written[2]


def test_score_tells_ill_from_healthy_and_early_from_right() -> None:
    case = QueueCase("common", "x2", 1)
    truth = WrittenCase((), frozenset({"sdab"}), frozenset({"oss-1"}), 1000, 2000)
    member = {
        "record": "component",
        "level": "component",
        "straggler": False,
        "first_alarm": None,
        "windows": 9,
    }
    records = [
        member | {"component": "sdaa"},
        member | {"component": "sdab", "straggler": True, "first_alarm": 1600},
        member | {"component": "sdac", "first_alarm": 1700},
        member | {"component": "sdad", "windows": 0},
    ]
    right = score(case, truth, records)
    assert (right.found, right.ill, right.delay_minutes) == (1, 1, 10.0)
    assert right.healthy == ("sdac",)
    assert right.unjudged == 1
    records[1]["first_alarm"] = 900
    early = score(case, truth, records)
    assert (early.found, early.delay_minutes) == (0, None)
