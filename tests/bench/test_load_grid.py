"""The load grid's series are as their model says, and its counts are those of the verdicts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy.load_grid import all_scenarios, maintenance, sizes, stops, together, uneven, variants
from bench.accuracy.load_grid.device import CURVES, DISK, MOST_BUSY, Array, mean_of_requests, noise, wander
from bench.accuracy.load_grid.grid import GRID_CURVES, HOUR, Cell, cell_series, scenario
from bench.accuracy.load_grid.judge import Event, Verdict, judge, judge_by_command
from bench.accuracy.load_grid.load import OPEN_LOADS, Shape
from bench.accuracy.load_grid.maintenance import BackupCase, HogCase, ScrubCase
from bench.accuracy.load_grid.outcome import outcome
from bench.accuracy.load_grid.report import tables
from bench.accuracy.load_grid.results import Kept, Result, Task, run_task
from bench.accuracy.load_grid.scenario import HALF_MINUTES, OPERATIONS, QUARTER_MINUTES
from bench.accuracy.load_grid.series import Episode, Part, Series
from bench.accuracy.load_grid.sizes import LARGEST, SMALLEST, SizesCase, by_jobs
from bench.accuracy.load_grid.stops import BUSY, SERVICE_SECONDS, Stop, StopCase, stop_sums
from bench.accuracy.load_grid.together import PartCase
from bench.accuracy.load_grid.uneven import UnevenCase
from bench.accuracy.load_grid.variants import ServiceCase

SERVICE_MS = 6.0
LOADS = ("common", "static", "jobs", "bursts", "open", "closed")


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("load", LOADS)
def test_the_same_seed_draws_the_same_series(load: str) -> None:
    cell = scenario(Cell(load, "mm1", 8, 0.1, 2.0))
    first, again, other = cell.series(3), cell.series(3), cell.series(4)
    assert np.array_equal(first.latency, again.latency)
    assert first.ill == again.ill
    assert all(np.array_equal(first.load[name], again.load[name]) for name in first.load)
    assert not np.array_equal(first.latency, other.latency)
    assert not np.array_equal(first.latency, cell.series(3, "reporting").latency)


@pytest.mark.parametrize("load", LOADS)
def test_without_a_curve_healthy_members_take_the_service_time_whatever_their_load(load: str) -> None:
    series = cell_series(Cell(load, "flat", 16, 0.03, 1.0), rng())
    active = series.load["operations"] > 100
    medians = [np.median(values[on]) for values, on in zip(series.latency, active, strict=True)]
    assert np.allclose(medians, SERVICE_MS, rtol=0.12)  # units differ by 3 %
    assert np.median(medians) == pytest.approx(SERVICE_MS, rel=0.03)


@pytest.mark.parametrize("curve", sorted(CURVES))
@pytest.mark.parametrize("load", ["common", "static", "jobs", "bursts", "open"])
def test_latency_over_load_follows_the_curve(load: str, curve: str) -> None:
    series = cell_series(Cell(load, curve, 16, 0.03, 1.0), rng())
    operations = series.load["operations"]
    used = operations * SERVICE_MS / 1000.0 / series.interval_seconds
    for low in (0.2, 0.4, 0.6):
        here = (used > low) & (used < low + 0.05)
        if here.sum() > 50:
            expected = SERVICE_MS * CURVES[curve](np.array(low + 0.025))
            assert np.median(series.latency[here]) == pytest.approx(expected, rel=0.08)


def test_curves_have_the_values_that_their_description_gives() -> None:
    idle, most = np.array(0.0), np.array(0.9)
    assert all(curve(idle) == 1.0 for curve in CURVES.values())
    ends = {name: float(curve(most)) for name, curve in CURVES.items()}
    assert ends == pytest.approx(
        {"flat": 1.0, "mm1": 10.0, "saturating": 2.565, "merging": 0.4255, "knee": 5.305}, rel=1e-3
    )


@pytest.mark.parametrize("load", LOADS)
def test_a_fault_multiplies_the_latency_of_one_member_and_nothing_else(load: str) -> None:
    cell = Cell(load, "saturating", 8, 0.25, 3.0)
    ill = cell_series(cell, rng())
    healthy = cell_series(replace(cell, factor=1.0), rng(), hours=cell.hours)
    (fault,) = ill.ill
    member, during = ill.components.index(fault.component), ill.columns(fault.begin, fault.end)
    active = healthy.load["operations"] > 0
    ratio = np.divide(ill.latency, healthy.latency, out=np.ones_like(ill.latency), where=active)
    expected = np.ones_like(ratio)
    expected[member, during] = 3.0
    assert np.allclose(ratio[active], expected[active])
    served = ill.load["operations"][member, during].sum() / healthy.load["operations"][member, during].sum()
    assert served == pytest.approx(1 / 3 if load == "closed" else 1.0, rel=0.05)


def test_a_closed_loop_obeys_littles_law() -> None:
    series = cell_series(Cell("closed", "mm1", 8, 0.25, 6.0), rng())
    in_flight = series.latency / 1000.0 * series.load["operations"] / series.interval_seconds
    nearest = np.array([1.0, 2.0, 4.0, 8.0])[np.abs(in_flight[..., None] - [1, 2, 4, 8]).argmin(axis=-1)]
    assert np.median(np.abs(in_flight - nearest)) < 0.01
    assert set(np.unique(nearest)) == {1.0, 2.0, 4.0, 8.0}


def test_jobs_and_bursts_keep_few_members_busy_at_a_time() -> None:
    shape = Shape(16, 16 * 120, 30.0)
    busy = np.array([OPEN_LOADS["jobs"](rng(seed), shape) > 0.1 for seed in range(8)])
    assert 0.1 < busy.mean() < 0.3
    assert 1 <= np.median(busy.sum(axis=1)) <= 5
    bursts = np.array([OPEN_LOADS["bursts"](rng(seed), shape) > 0 for seed in range(8)])
    assert 0.05 < bursts.mean() < 0.09
    assert np.median(bursts.sum(axis=1)) <= 2


def test_static_loads_stay_and_span_eight_times() -> None:
    busy = OPEN_LOADS["static"](rng(), Shape(16, 1000, 30.0)).mean(axis=1)
    assert busy.max() / busy.min() == pytest.approx(8.0, rel=0.05)


def test_common_load_is_alike_at_any_moment_and_differs_by_the_hour() -> None:
    busy = OPEN_LOADS["common"](rng(), Shape(16, 24 * 120, 30.0))
    assert (busy.std(axis=0) / busy.mean(axis=0)).max() < 0.15
    assert busy.mean(axis=0).max() / busy.mean(axis=0).min() > 4


def test_sizes_add_up_to_the_service_time_of_each_stream() -> None:
    shape = Shape(4, 4 * 120, 30.0)
    requests = by_jobs(rng(), shape, DISK).requests
    assert requests.request_bytes.min() >= SMALLEST
    assert requests.request_bytes.max() <= LARGEST
    lowest, highest = (DISK.seconds(np.array(size), np.array(1.0)) for size in (SMALLEST, LARGEST))
    assert lowest * 0.7 < requests.seconds.min()
    assert requests.seconds.max() < highest * 2.0


@pytest.mark.parametrize("wandering", [0.0, 0.5])
def test_noise_has_the_spread_and_the_correlation_asked_for(wandering: float) -> None:
    logs = np.log(noise(rng(), (64, 2000), 0.25, wandering, 10.0))
    assert logs.std() == pytest.approx(0.25, rel=0.05)
    assert np.median(logs) == pytest.approx(0.0, abs=0.02)
    neighbours = float((logs[:, 1:] * logs[:, :-1]).mean() / logs.var())
    assert neighbours == pytest.approx(wandering * np.exp(-0.1), abs=0.03)
    assert wander(rng(), (64, 2000), 10.0).std() == pytest.approx(1.0, rel=0.1)


def test_the_mean_of_few_requests_varies_more() -> None:
    few, many = (mean_of_requests(rng(), np.full(20_000, n)) for n in (4.0, 400.0))
    assert (few.mean(), few.std()) == pytest.approx((1.0, 0.5), rel=0.03)
    assert (many.mean(), many.std()) == pytest.approx((1.0, 0.05), rel=0.03)
    assert mean_of_requests(rng(), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_names_are_unique_and_quick_has_every_kind() -> None:
    known = list(all_scenarios())
    assert len({scenario.name for scenario in known}) == len(known)

    def kind(name: str) -> tuple[str, ...]:
        first, second, *_ = name.split("/")
        return (first, second) if first in {"grid", "sizes", "now and then"} else (first,)

    assert {kind(s.name) for s in known if s.quick} == {kind(s.name) for s in known}


def test_the_command_names_the_same_as_the_engine_in_this_process(tmp_path: Path) -> None:
    case = scenario(Cell("jobs", "flat", 8, 0.1, 3.0))
    series = case.series(0)
    for loads in (OPERATIONS, ()):
        here = judge(series, case.windows, loads)
        there = judge_by_command(series, case.windows, tmp_path, with_load=bool(loads))
        assert here.stragglers == there.stragglers
        assert series.ill[0].component in here.stragglers
        first: dict[str, float] = {}
        for event in here.events:
            if event.kind == "raised":
                first.setdefault(event.component, event.at)
        assert first == {event.component: event.at for event in there.events}


def made(ill: tuple[Episode, ...]) -> Series:
    """Four components over a day."""
    latency: Array = np.ones((4, 2880))
    return Series(("a", "b", "c", "d"), 30.0, latency, {}, ill)


def alarm(component: str, raised: float, cleared: float | None) -> list[Event]:
    first = [Event(component, "component", "raised", raised * HOUR)]
    return first if cleared is None else [*first, Event(component, "component", "cleared", cleared * HOUR)]


FAULT = Episode("a", 8 * HOUR, 10 * HOUR, 3.0)


def test_an_alarm_during_the_fault_is_found_and_one_before_is_false() -> None:
    series = made((FAULT,))
    good = outcome(series, Verdict({"a": "component"}, tuple(alarm("a", 8.5, 10.25))), HALF_MINUTES)
    assert (good.ill, good.found, good.delays, good.clearing) == (1, 1, (1800.0,), (2.0,))
    assert (good.healthy, good.healthy_days, good.named, good.alarmed) == (3, 3.0, (), ())
    before = outcome(series, Verdict({"a": "component"}, tuple(alarm("a", 2.0, 3.0))), HALF_MINUTES)
    assert (before.found, before.delays, before.alarmed) == (0, (), ("a",))
    unconfirmed = outcome(series, Verdict({}, tuple(alarm("a", 8.5, 9.0))), HALF_MINUTES)
    assert (unconfirmed.found, unconfirmed.delays, unconfirmed.alarmed) == (0, (1800.0,), ())


def test_an_alarm_of_a_fault_to_the_end_has_no_time_of_clearing() -> None:
    lasting = replace(FAULT, end=24 * HOUR)
    verdict = Verdict({"a": "component"}, tuple(alarm("a", 8.5, None)))
    assert outcome(made((lasting,)), verdict, HALF_MINUTES).clearing == ()
    assert outcome(made((FAULT,)), verdict, HALF_MINUTES).clearing == (float("inf"),)


def test_healthy_ones_are_named_or_only_alarmed() -> None:
    verdict = Verdict({"b": "component"}, (*alarm("b", 1.0, 4.0), *alarm("c", 5.0, None)))
    counts = outcome(made((FAULT,)), verdict, HALF_MINUTES)
    assert (counts.found, counts.named, counts.alarmed) == (0, ("b",), ("b", "c"))
    parents = Verdict({"oss-1": "node"}, (Event("oss-1", "node", "raised", HOUR),))
    counts = outcome(made((FAULT,)), parents, HALF_MINUTES)
    assert (counts.named, counts.alarmed, counts.parents) == ((), (), ("node:oss-1",))


def test_a_run_goes_on_from_its_file_and_begins_anew_after_a_change(tmp_path: Path) -> None:
    task = Task(scenario(Cell("bursts", "flat", 4, 0.1, 1.0)), 0, "tuning", without_load=True)
    result, path = run_task(task), tmp_path / "results.part"
    assert list(Kept(path, {"detector": "x"}).read()) == []
    assert list(Kept(path, {"detector": "x"}).append([result])) == [result]
    with path.open("a") as file:
        file.write('{"row": "half a li')
    kept = Kept(path, {"detector": "x"})
    assert kept.read() == [result]
    assert list(kept.append([result])) == [result]
    assert kept.read() == [result, result]
    assert Kept(path, {"detector": "y"}).read() == []


def test_tables_are_as_wide_as_a_wide_terminal() -> None:
    counts = outcome(made((FAULT,)), Verdict({}), HALF_MINUTES)
    many = replace(counts, healthy=99_999, healthy_days=99_999.0, named=("a",) * 1000, alarmed=("a",) * 9999)
    results = [Result(s.row, s.column, 0, many, many) for s in all_scenarios()]
    assert max(map(len, tables(results))) <= 160


def test_tables_mark_cells_that_load_makes_worse() -> None:
    series = made((FAULT,))
    good = outcome(series, Verdict({"a": "component"}, tuple(alarm("a", 8.5, 10.0))), HALF_MINUTES)
    bad = outcome(series, Verdict({"b": "component"}, tuple(alarm("b", 8.5, 10.0))), HALF_MINUTES)
    worse = Result("grid/jobs/flat/4/10%", "2x", 0, bad, good)
    better = Result("grid/open/flat/4/10%", "3x", 0, good, bad)
    lines = list(tables([worse, better]))
    assert "0/100!" in lines[1]
    assert "1/0!" in lines[1]
    assert "100/0 " in lines[2]
    assert "0/1 " in lines[2]
    assert "!" not in lines[2]
    assert lines[-1] == "of 2 cells 1 find less, and 1 name more, than without"


def test_an_alarm_that_stood_before_the_fault_does_not_find_it() -> None:
    counts = outcome(made((FAULT,)), Verdict({"a": "component"}, tuple(alarm("a", 2.0, None))), HALF_MINUTES)
    assert (counts.found, counts.delays, counts.alarmed, counts.false_hours) == (0, (), ("a",), (2.0,))


def test_a_slow_part_is_told_by_an_alarm_with_its_name_while_it_is_slow() -> None:
    series = replace(made(()), slow_parts=(Part("server", "oss-2", 8 * HOUR, 10 * HOUR),))

    def told(name: str, level: str, hour: float) -> int:
        event = Event(name, level, "raised", hour * HOUR)
        return outcome(series, Verdict({}, (event,)), HALF_MINUTES).parts_told

    assert told("oss-2", "node", 9.0) == 1
    assert told("oss-1", "node", 9.0) == told("oss-2", "node", 5.0) == told("oss-2", "component", 9.0) == 0


def served_one_by_one(stop: Stop, shape: Shape) -> tuple[Array, Array]:
    """Requests at even distances through a queue of one server: completed and seconds waited (T,)."""
    arrivals = np.arange(0.0, shape.intervals * shape.interval_seconds, SERVICE_SECONDS / BUSY)
    completed, waited = np.zeros(shape.intervals), np.zeros(shape.intervals)
    free = 0.0
    for arrival in arrivals:
        start = max(arrival, free)
        if stop.begin <= start < stop.begin + stop.seconds:
            start = stop.begin + stop.seconds
        free = start + SERVICE_SECONDS
        t = int(start // shape.interval_seconds)
        if t < shape.intervals:
            completed[t] += 1
            waited[t] += start - arrival
    return completed, waited


@pytest.mark.parametrize("interval", [1.0, 15.0])
@pytest.mark.parametrize("seconds", [0.4, 5.0, 10.0])
def test_a_stop_delays_what_arrives_as_a_queue_of_one_server_does(interval: float, seconds: float) -> None:
    shape, stop = Shape(1, int(60 / interval), interval), Stop(0, 13.7, seconds)
    completed, waited = stop_sums(shape, [stop])
    expected, expected_waited = served_one_by_one(stop, shape)
    usual = BUSY * interval / SERVICE_SECONDS
    assert np.allclose(usual + completed[0], expected, atol=2.0)
    assert np.allclose(waited[0], expected_waited, rtol=0.03, atol=0.5)


def test_a_stop_of_five_seconds_shows_in_one_interval_of_forty() -> None:
    series = stops.series_of(StopCase(QUARTER_MINUTES, 8, 5.0, 600.0), rng())
    member = series.components.index(series.ill[0].component)
    during = series.columns(series.ill[0].begin, series.ill[0].end)
    high = series.latency > 100.0
    assert high[member, during].sum() in range(24, 50)  # a backlog may end in the next interval
    high[member, during] = False
    assert not high.any()


def test_a_backup_reads_on_four_members_at_night_in_large_requests() -> None:
    series = maintenance.backup(BackupCase("flat", same=True), rng())
    size = series.load["request_bytes"]
    for hour, count in ((20.0, 0), (26.0, 4), (40.0, 0), (50.0, 4), (74.0, 4)):
        column = series.columns(hour * HOUR, hour * HOUR).start
        large = size[:, column] > 8 * maintenance.ORDINARY_BYTES
        assert large.sum() == count
        if count:
            read = series.load["throughput"][large, column].mean()
            assert 60e6 < read < 120e6


def test_a_scrub_visits_each_member_once() -> None:
    series = maintenance.scrub(ScrubCase("common", 12), rng())
    slow = series.latency > 1.4 * SERVICE_MS
    hours = slow.sum(axis=1) * series.interval_seconds / HOUR
    assert np.allclose(hours, maintenance.SCRUB_HOURS, atol=0.25)
    assert np.median(slow.sum(axis=0)[series.columns(9 * HOUR, 30 * HOUR)]) == 1


def test_a_hog_that_is_counted_brings_load_and_one_that_is_not_brings_none() -> None:
    for counted in (True, False):
        series = maintenance.hog(HogCase(1, counted), rng())
        member = series.components.index(series.ill[0].component)
        during = series.columns(series.ill[0].begin, series.ill[0].end)
        others = [m for m in range(8) if m != member]
        moved = series.load["throughput"].mean(axis=1)
        assert (series.load["throughput"][member, during].mean() > 4 * np.median(moved[others])) == counted
        before = np.median(series.latency[member, : during.start])
        assert np.median(series.latency[member, during]) > 1.5 * before


def test_a_hot_member_has_more_load_and_the_latency_of_its_queue() -> None:
    series = uneven.series_of(UnevenCase("hot", "mm1", 16), rng())
    load = series.load["operations"].mean(axis=1)
    hot = int(load.argmax())
    assert load[hot] / np.median(load) == pytest.approx(uneven.HOT, rel=0.05)
    used = series.load["operations"][hot] * SERVICE_MS / 1000.0 / series.interval_seconds
    assert np.median(series.latency[hot] * (1.0 - used)) == pytest.approx(SERVICE_MS, rel=0.08)


def test_generations_are_a_quarter_apart_and_told_by_model() -> None:
    series = uneven.series_of(UnevenCase("third", "flat", 16, load="open"), rng())
    models = series.attributes["model"]
    old = np.array([models[name] == "gen1" for name in series.components])
    medians = np.median(series.latency, axis=1)
    assert old.sum() == 5
    assert medians[old].mean() / medians[~old].mean() == pytest.approx(uneven.APART, rel=0.05)


@pytest.mark.parametrize("attribute", ["server", "model", "pool"])
def test_half_of_a_group_is_slow_and_four_of_six_recover(attribute: str) -> None:
    series = together.series_of(PartCase(attribute, 3.0, recover=True), rng())
    (part,) = series.slow_parts
    within = [series.attributes[attribute][name] == part.value for name in series.components]
    first, later = (series.columns(at + 60.0, at + HOUR) for at in (part.begin, part.end))
    slow = np.median(series.latency[:, first], axis=1) > 2 * SERVICE_MS
    assert slow.tolist() == within
    assert sum(within) == 6
    still = np.median(series.latency[:, later], axis=1) > 2 * SERVICE_MS
    names = {name for name, is_slow in zip(series.components, still, strict=True) if is_slow}
    assert names == {fault.component for fault in series.ill}
    assert len(names) == 2


def test_slow_service_lengthens_the_queue_and_serves_no_more_than_the_device_can() -> None:
    series = variants.slow_service(ServiceCase("static", "mm1", 3.0), rng())
    (fault,) = series.ill
    member, during = series.components.index(fault.component), series.columns(fault.begin, fault.end)
    before = series.columns(0.0, fault.begin)
    ratio = np.median(series.latency[member, during]) / np.median(series.latency[member, before])
    assert ratio > 3.0
    busy = series.load["operations"][member, during] * 3.0 * SERVICE_MS / 1000.0 / series.interval_seconds
    assert busy.max() < 1.1


def test_io_now_and_then_is_absent_most_of_the_time_and_the_ill_one_has_some() -> None:
    series = sizes.series_of(SizesCase("mixed bursts", "disk", "flat", 24, 3.0), rng())
    active = series.load["operations"] > 0
    assert 0.05 < active.mean() < 0.1
    assert not series.latency[~active].any()
    (fault,) = series.ill
    during = series.columns(fault.begin, fault.end)
    assert active[series.components.index(fault.component), during].sum() >= sizes.MIN_BUSY


@pytest.mark.parametrize("curve", GRID_CURVES)
@pytest.mark.parametrize("load", LOADS)
def test_whoever_knows_the_curve_tells_two_times_from_healthy_in_every_window(load: str, curve: str) -> None:
    series = cell_series(Cell(load, curve, 16, 0.1, 2.0), rng())
    (fault,) = series.ill
    operations = series.load["operations"]
    if load == "closed":
        in_flight = np.round(series.latency / 1000.0 * operations / series.interval_seconds)
        used = in_flight / (in_flight + 1.0)
    else:
        used = np.minimum(operations * SERVICE_MS / 1000.0 / series.interval_seconds, MOST_BUSY)
    excess = np.where(operations > 0, series.latency, np.nan) / (SERVICE_MS * CURVES[curve](used))
    member, during = series.components.index(fault.component), series.columns(fault.begin, fault.end)
    ill, healthy = [], []
    for first in range(0, excess.shape[1] - 30, 15):
        window = excess[:, first : first + 30]
        for c in np.flatnonzero(np.isfinite(window).sum(axis=1) >= 5):
            median = float(np.nanmedian(window[c]))
            if c != member:
                healthy.append(median)
            elif during.start <= first and first + 30 <= during.stop:
                ill.append(median)
    assert len(ill) >= 3
    assert min(ill) > 1.6 > 1.25 > max(healthy)
