"""What requests ought to take: by their kind and size, by the load, and where others were never seen."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.detect.laggard.expected import Expected, ExpectedTime
from laggard_aggregator.detect.laggard.load_curve import CELLS, LoadCurve, OthersCurve
from laggard_aggregator.detect.laggard.service_demand import ServiceDemand, kinds_of_request
from laggard_aggregator.detect.peers import trimmed_mean
from tests import naive
from tests.aggregator.detect.courses import SHIFT, Values, autocorrelated, course_of, slowed, windows_of
from tests.support.thorough import examples

SHAPE = (12, SHIFT)
NAMES = tuple(f"oss/{c}" for c in range(SHAPE[0]))
KEPT = 0.97

# --- service demands ---------------------------------------------------------------------------------------

DEMANDS = np.array([0.6, 0.9, 0.05, 0.12])
"""Of a read, a write, and 64 KiB read and written."""


def fitted(factors: dict[int, float], fixed: bool, demands: Values = DEMANDS) -> ServiceDemand:
    """The fit to 40 windows of requests, whose sizes are `fixed` by member or change from tick to tick."""
    rng, service = np.random.default_rng(7), ServiceDemand()
    sizes = np.geomspace(4096.0, 4194304.0, SHAPE[0])[:, None] * np.ones(SHAPE)
    for _ in range(40):
        size = sizes if fixed else 4096.0 * 2.0 ** rng.uniform(0.0, 10.0, SHAPE)
        kinds = kinds_of_request({"read_share": rng.uniform(0.0, 1.0, SHAPE), "request_bytes": size}, SHAPE)
        assert kinds is not None
        time = np.tensordot(demands, kinds, 1) * np.exp(rng.normal(0.0, 0.05, SHAPE))
        service.learn(NAMES, kinds, np.log(slowed(time, factors)), KEPT)
    return service


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("factors", [{}, {5: 3.0}, {5: 1.0 / 3.0}])
def test_demands_are_recovered(factors: dict[int, float], fixed: bool) -> None:
    assert fitted(factors, fixed).demands == pytest.approx(DEMANDS, rel=0.05)


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 3.0))
@settings(max_examples=20, deadline=None)
def test_demands_are_never_negative(seed: int, noise: float) -> None:
    rng, service = np.random.default_rng(seed), ServiceDemand()
    for _ in range(4):
        size = 4096.0 * 2.0 ** rng.uniform(0.0, 8.0, SHAPE)
        kinds = kinds_of_request({"read_share": rng.uniform(0.0, 1.0, SHAPE), "request_bytes": size}, SHAPE)
        # The larger a request the less it takes: without the limit, the demand of bytes would be negative.
        service.learn(NAMES, kinds, -0.3 * np.log(size / 65536.0) + rng.normal(0.0, noise, SHAPE), KEPT)
        assert (service.demands >= 0.0).all()
        assert np.isfinite(service.log_time(kinds, SHAPE)).all()


def test_requests_of_one_kind_take_the_same_time_whatever_load_does() -> None:
    """Times of a group that grow with its load are for the curve to explain, or it would never be steady."""
    rng, service = np.random.default_rng(8), ServiceDemand()
    kinds = kinds_of_request(
        {"read_share": np.full(SHAPE, 0.5), "request_bytes": np.full(SHAPE, 65536.0)}, SHAPE
    )
    for growth in np.linspace(0.0, 2.0, 40):
        service.learn(NAMES, kinds, rng.normal(growth, 0.1, SHAPE), KEPT)
        assert service.log_time(kinds, SHAPE) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("requests", [4.0, 400.0])
def test_demands_of_means_leave_nothing_between_means(requests: float) -> None:
    """Small requests in intervals of 4, large ones in intervals of 4 or 400, gamma distributed."""
    rng, service, apart = np.random.default_rng(9), ServiceDemand(), []
    large = (np.arange(SHAPE[0]) % 2 == 1)[:, None]
    done, size = np.where(large, requests, 4.0) * np.ones(SHAPE), np.where(large, 262_144.0, 4096.0)
    kinds = kinds_of_request({"request_bytes": size * np.ones(SHAPE)}, SHAPE)
    for window in range(40):
        time = np.log((8.0 + size / 150_000.0) * rng.gamma(6.0 * done) / (6.0 * done))
        if window >= 20:
            mean = trimmed_mean(time - service.log_time(kinds, SHAPE), done)
            apart.append(mean[large[:, 0]].mean() - mean[~large[:, 0]].mean())
        service.learn_means(NAMES, kinds, time, done, KEPT)
    assert np.mean(apart) == pytest.approx(0.0, abs=0.01)


# --- the load curve ----------------------------------------------------------------------------------------


@st.composite
def samples_of_members(draw: st.DrawFn) -> tuple[Values, Values]:
    """Positions and log ratios of 4 to 7 members, near one cell: some cells are known, some are not."""
    members, ticks = draw(st.integers(4, 7)), draw(st.sampled_from([1, 7, 40, 200]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, width = draw(st.integers(0, CELLS - 1)), draw(st.sampled_from([0.0, 0.4, 1.0, 2.0, 6.0]))
    position = np.clip(first + rng.uniform(-1.0, 1.0, (members, ticks)) * width, 0.0, CELLS - 1.0)
    ratio = 0.1 * position + rng.normal(0.0, 0.3, position.shape)
    ratio[rng.random(position.shape) < 0.1] = np.nan
    position[rng.random(position.shape) < 0.1] = np.nan
    return position, ratio


def curve_of(position: Values, ratio: Values, prior: float = 2.0) -> LoadCurve:
    curve = LoadCurve()
    curve.prior, curve.pooled = prior, np.linspace(0.0, 0.6, CELLS)
    half = position.shape[1] // 2
    for part in (slice(None, half), slice(half, None)):
        curve.learn(NAMES[: len(position)], position[:, part], ratio[:, part], KEPT)
    return curve


@given(samples_of_members(), st.floats(0.0, 1.0), st.floats(0.0, 20.0), st.booleans())
@settings(max_examples=examples(50), deadline=None)
def test_curves_of_others_equal_the_naive_twin(
    values: tuple[Values, Values], slope: float, prior: float, closed_loop: bool
) -> None:
    position, ratio = values
    members, ticks = position.shape
    samples = [
        [
            naive.CurveSample(position[c, t], ratio[c, t], KEPT if t < ticks // 2 else 1.0)
            for t in range(ticks)
            if np.isfinite(position[c, t] + ratio[c, t])
        ]
        for c in range(members)
    ]
    curve = curve_of(position, ratio, prior)
    others = curve.of_others(NAMES[:members], slope, closed_loop=closed_loop)
    at = np.linspace(0.0, CELLS - 1.0, 25) * np.ones((members, 1))
    unseen = others.unseen(at, curve.own_times(NAMES[:members]))
    for c in range(members):
        twin = naive.laggard_curve_of_others(
            samples, c, prior, curve.pooled.tolist(), slope, closed_loop=closed_loop
        )
        own = naive.laggard_own_times(samples[c])
        assert others.point[c] == pytest.approx(twin.point)
        assert others.level[c] == pytest.approx(twin.level, abs=1e-9)
        assert others.known[c] == twin.known
        assert others.span[c] == pytest.approx(twin.span, abs=1e-9)
        assert others.begin[c] == pytest.approx(twin.begin, nan_ok=True)
        assert others.end[c] == pytest.approx(twin.end, nan_ok=True)
        assert others.utilisation[c] == pytest.approx(twin.utilisation, abs=1e-9)
        usual, doubt, left = zip(
            *(naive.laggard_unseen(twin, p, own, closed_loop=closed_loop) for p in at[c]), strict=True
        )
        assert unseen.usual[c] == pytest.approx(usual, abs=1e-7)
        assert unseen.doubt[c] == pytest.approx(doubt, abs=1e-7)
        assert unseen.left[c] == pytest.approx(left, abs=1e-7)


@given(samples_of_members(), st.integers(0, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(50), deadline=None)
def test_no_member_bends_its_own_curve(values: tuple[Values, Values], own: int, seed: int) -> None:
    rng, (position, ratio) = np.random.default_rng(seed), values
    changed_position, changed_ratio = position.copy(), ratio.copy()
    changed_position[own] = rng.uniform(0.0, CELLS - 1.0, position.shape[1])
    changed_ratio[own] = rng.normal(0.0, 5.0, position.shape[1])
    before, after = (
        curve_of(*both).of_others(NAMES[: len(position)], 0.3, closed_loop=False)
        for both in ((position, ratio), (changed_position, changed_ratio))
    )
    for name in OthersCurve.__dataclass_fields__.keys() - {"closed_loop"}:
        assert np.array_equal(getattr(before, name)[own], getattr(after, name)[own], equal_nan=True), name


@pytest.mark.parametrize("seed", range(3))
def test_the_pooled_curve_equals_the_naive_twin(seed: int) -> None:
    rng, curve, windows = np.random.default_rng(seed), LoadCurve(), []
    curve.prior = 3.0
    for _ in range(3):
        position = np.clip(rng.normal(14.0, 4.0, (5, 8)), 0.0, CELLS - 1.0)
        position[0] = CELLS - 1.0
        level = rng.normal(0.0, 0.3, 8)
        ratio = 0.1 * (position - 12.0) + level + rng.normal(0.0, 0.2, position.shape)
        ratio[1, 2], position[2, 3], ratio[:, 4] = np.nan, np.nan, np.nan
        ratio[4, 5] += 4.0  # beyond the limit of what teaches
        windows.append(naive.PooledWindow(position.tolist(), ratio.tolist(), level.tolist()))
        curve.learn_pooled(position, ratio, level, KEPT)
        twin = naive.laggard_pooled_curve(windows, KEPT, curve.prior, CELLS)
        assert curve.pooled == pytest.approx(twin, abs=1e-8)
    assert np.ptp(curve.pooled) > 0.3


# --- expected times ----------------------------------------------------------------------------------------


def expected_by(time: ExpectedTime, load: dict[str, Values], logs: Values | None = None) -> Expected:
    logs = np.random.default_rng(1).normal(2.0, 0.1, SHAPE) if logs is None else logs
    return time.expected(NAMES, load, logs, lambda _: 0.3)


def window_of_jobs(rng: np.random.Generator) -> tuple[dict[str, Values], Values]:
    """Loads over four octaves and the logs of latencies that go with them."""
    operations = 50.0 * 2.0 ** rng.uniform(0.0, 4.0, SHAPE)
    size = 65536.0 * 2.0 ** rng.uniform(0.0, 3.0, SHAPE)
    load = {"operations": operations, "request_bytes": size, "read_share": rng.uniform(0.0, 1.0, SHAPE)}
    return load, np.log(5.0 + size / 65536.0) + 0.2 * np.log(operations) + rng.normal(0.0, 0.1, SHAPE)


def test_state_goes_on_to_the_bit() -> None:
    rng, time = np.random.default_rng(3), ExpectedTime(SHIFT * 15.0)
    healthy = np.arange(SHAPE[0]) != 4
    for _ in range(10):
        load, logs = window_of_jobs(rng)
        time.learn(NAMES, load, logs, logs - 2.0, healthy, 0.01)
    other = ExpectedTime(SHIFT * 15.0).restored(json.loads(json.dumps(time.state())))
    for _ in range(5):
        load, logs = window_of_jobs(rng)
        one, two = expected_by(time, load), expected_by(other, load)
        assert np.array_equal(one.log_time, two.log_time)
        assert np.array_equal(one.service, two.service)
        assert np.array_equal(one.doubt, two.doubt)
        assert (one.usual, one.wander, one.windows) == (two.usual, two.wander, two.windows)
        for model in (time, other):
            model.learn(NAMES, load, logs, logs - 2.0, healthy, 0.01)
    assert other.state() == time.state()


def test_sizes_that_others_never_had_are_in_doubt_by_as_much_as_they_are_larger() -> None:
    rng, time = np.random.default_rng(4), ExpectedTime(SHIFT * 15.0)
    load = {"request_bytes": 16384.0 * 2.0 ** rng.uniform(0.0, 1.0, SHAPE)}
    load["request_bytes"][0] *= 64.0
    time.learn(NAMES, load, rng.normal(2.0, 0.1, SHAPE), None, np.ones(SHAPE[0], np.bool_), 0.01)
    doubt = expected_by(time, load).doubt
    assert doubt[0] == pytest.approx(np.log(64.0), abs=np.log(2.0))
    assert not doubt[1:].any()


@pytest.mark.parametrize("name", ["request_bytes", "read_share"])
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_kinds_that_only_one_has_excuse_no_more_than_its_own_times_of_them(name: str, factor: float) -> None:
    rng, time = np.random.default_rng(11), ExpectedTime(SHIFT * 15.0)
    load = {"request_bytes": np.full(SHAPE, 16384.0), "read_share": np.full(SHAPE, 0.9)}
    load[name][0] *= {"request_bytes": 64.0, "read_share": 0.1}[name]
    for _ in range(10):
        logs = rng.normal(2.0, 0.05, SHAPE)
        logs[0] += np.log(factor)
        time.learn(NAMES, load, logs, None, np.ones(SHAPE[0], np.bool_), 0.01)
    expected = expected_by(time, load)
    left = logs[0] - np.median(logs[1:]) - (expected.log_time[0] - np.median(expected.log_time[1:]))
    assert expected.doubt[0] == pytest.approx(max(left.mean(), 0.0), abs=0.05)
    assert not expected.doubt[1:].any()


def test_larger_requests_of_others_tell_of_smaller_ones() -> None:
    """A size for each member, an octave apart: beyond the third largest of the others there is doubt."""
    time = ExpectedTime(SHIFT * 15.0)
    load = {"request_bytes": 4096.0 * 2.0 ** np.arange(SHAPE[0])[:, None] * np.ones(SHAPE)}
    time.learn(NAMES, load, np.log(4000.0 + load["request_bytes"]), None, np.ones(SHAPE[0], np.bool_), 0.01)
    doubt = expected_by(time, load).doubt
    assert not doubt[:-2].any()
    assert doubt[-2:, 0] == pytest.approx(np.log([2.0, 4.0]), abs=np.log(2.0))


def test_kinds_are_told_from_the_load_that_they_come_with() -> None:
    """Jobs of requests of any size on a quarter of the members, which queue; the rest are all but idle."""
    rng, time = np.random.default_rng(12), ExpectedTime(SHIFT * 15.0)
    for _ in range(60):
        busy = rng.random((SHAPE[0], 1)) < 0.25
        size = np.where(busy, 4096.0 * 2.0 ** rng.integers(0, 11, busy.shape), 16384.0) * np.ones(SHAPE)
        used = np.where(busy, rng.uniform(0.2, 0.85, busy.shape), 0.02) * rng.uniform(0.9, 1.1, SHAPE)
        service = 4.0 + size / 150_000.0
        load = {"operations": 15_000.0 * used / service, "request_bytes": size}
        logs = np.log(service / (1.0 - used)) + rng.normal(0.0, 0.05, SHAPE)
        time.learn(NAMES, load, logs, None, np.ones(SHAPE[0], np.bool_), 0.01)
    small, large = (
        expected_by(
            time,
            {
                "operations": np.full(SHAPE, 300.0 / (4.0 + size / 150_000.0)),
                "request_bytes": np.full(SHAPE, size),
            },
        ).log_time.mean()
        for size in (16384.0, 1048576.0)
    )
    assert large - small == pytest.approx(np.log(10.99 / 4.109), abs=0.15)


def test_only_what_all_higher_loads_show_is_growth() -> None:
    curve = LoadCurve()
    curve.pooled = np.full(CELLS, 0.9)
    curve.pooled[:8] = [-0.1, -0.1, 0.5, 0.2, 0.3, 0.8, 0.6, 0.7]
    at = np.array([[0.0, 2.0, 3.0, 5.0, 6.5, 20.0, np.nan]])
    assert curve.growth_at(at)[0] == pytest.approx([0.0, 0.3, 0.3, 0.7, 0.75, 1.0, 0.0])
    curve.pooled = -curve.pooled
    assert not curve.growth_at(at).any()


def test_sizes_in_a_first_window_are_held_against_those_of_the_others_in_it() -> None:
    size = np.full(SHAPE, 16384.0)
    size[:4] *= 64.0
    doubt = expected_by(ExpectedTime(SHIFT * 15.0), {"request_bytes": size}).doubt
    assert doubt[:4] == pytest.approx(np.full((4, SHIFT), np.log(64.0)), abs=np.log(2.0))
    assert not doubt[4:].any()


def test_known_loads_are_not_in_doubt_and_unknown_ones_are() -> None:
    rng, time = np.random.default_rng(5), ExpectedTime(SHIFT * 15.0)
    for _ in range(20):
        load, logs = window_of_jobs(rng)
        time.learn(NAMES, load, logs, None, np.ones(SHAPE[0], np.bool_), 0.01)
    operations = np.full(SHAPE, 200.0)
    operations[2] *= 256.0
    doubt = expected_by(time, {**load, "operations": operations}).doubt
    assert (doubt[2] > np.log(2.0)).all()
    assert not np.delete(doubt, 2, axis=0).any()


def test_what_latency_gains_with_load_is_expected() -> None:
    rng, time = np.random.default_rng(8), ExpectedTime(SHIFT * 15.0)
    for _ in range(40):
        operations = 50.0 * 2.0 ** rng.uniform(0.0, 4.0, SHAPE)
        logs = 2.0 + 0.2 * np.log(operations) + rng.normal(0.0, 0.1, SHAPE)
        time.learn(NAMES, {"operations": operations}, logs, None, np.ones(SHAPE[0], np.bool_), 0.01)
    low, high = (expected_by(time, {"operations": np.full(SHAPE, at)}).log_time for at in (100.0, 400.0))
    assert high - low == pytest.approx(np.full(SHAPE, 0.2 * np.log(4.0)), abs=0.05)


def test_a_group_at_one_load_explains_nothing() -> None:
    rng, time = np.random.default_rng(6), ExpectedTime(SHIFT * 15.0)
    load = {"operations": np.full(SHAPE, 100.0)}
    for _ in range(40):
        logs = rng.normal(2.0, 0.1, SHAPE)
        logs[3] += np.log(3.0)
        time.learn(NAMES, load, logs, None, np.arange(SHAPE[0]) != 3, 0.01)
    expected = expected_by(time, load)
    assert np.abs(expected.log_time - np.median(expected.log_time)).max() < 0.01
    assert np.abs(expected.log_time).max() < 0.02
    assert not expected.doubt.any()


def closed_loop(rng: np.random.Generator, depth: Values) -> tuple[dict[str, Values], Values]:
    """A window of clients that keep `depth` requests in flight at an M/M/1 queue: rate and log time."""
    time = 6.0 * (1.0 + depth) * np.exp(rng.normal(0.0, 0.1, SHAPE))
    return {"operations": 1000.0 * depth / time}, np.log(time)


def test_busy_times_tell_a_kind_that_comes_with_load_from_load() -> None:
    """Jobs of 1 MiB write on a third of the members; the rest are all but idle. Queues double their times."""
    rng, time = np.random.default_rng(16), ExpectedTime(SHIFT * 15.0)
    for window in range(20):
        busy = ((np.arange(SHAPE[0]) + window) % 3 == 0)[:, None] & np.ones(SHAPE, np.bool_)
        size, read_share = np.where(busy, 1048576.0, 16384.0), np.where(busy, 0.05, 0.6)
        load = {"operations": np.where(busy, 800.0, 60.0), "request_bytes": size, "read_share": read_share}
        service = np.log(6.0 + size / 250_000.0) + rng.normal(0.0, 0.05, SHAPE)
        logs = service + np.where(busy, np.log(2.0), 0.0)
        time.learn(NAMES, load, logs, service, np.ones(SHAPE[0], np.bool_), 0.01)
    large, small = (
        {name: np.full(SHAPE, value) for name, value in (("operations", rate), *kind)}
        for rate, kind in (
            (800.0, (("request_bytes", 1048576.0), ("read_share", 0.05))),
            (1344.0, (("request_bytes", 16384.0), ("read_share", 0.6))),  # as busy
        )
    )
    apart = expected_by(time, large).log_time - expected_by(time, small).log_time
    assert apart.mean() == pytest.approx(np.log(10.194 / 6.066), abs=0.03)


def test_in_a_closed_loop_the_requests_in_flight_explain_the_time() -> None:
    """Between 4 and 8 in flight the rate differs by 11 %, no more than by noise, the time by 1.8 times."""
    rng, time = np.random.default_rng(9), ExpectedTime(SHIFT * 15.0)
    for _ in range(20):
        load, logs = closed_loop(rng, 2.0 ** rng.integers(0, 4, (SHAPE[0], 1)) * np.ones(SHAPE))
        time.learn_loop(load, logs)
        time.learn(NAMES, load, logs, None, np.ones(SHAPE[0], np.bool_), 0.01)
    load, logs = closed_loop(rng, np.where(np.arange(SHAPE[0]) < 6, 4.0, 8.0)[:, None] * np.ones(SHAPE))
    log_time = expected_by(time, load, logs).log_time
    apart = np.median(log_time[6:]) - np.median(log_time[:6])
    assert apart == pytest.approx(np.log(9.0 / 5.0), abs=0.05)


def test_a_queue_is_known_between_the_cells_of_its_curve_and_up_to_their_edge() -> None:
    """From 0.6 to 0.88 of its capacity an M/M/1 queue takes 3.3 times as long, within one octave."""
    rng, time = np.random.default_rng(17), ExpectedTime(SHIFT * 15.0)
    for _ in range(60):
        used = rng.uniform(0.1, 0.9, (SHAPE[0], 1)) * np.ones(SHAPE)
        logs = -np.log(1.0 - used) + rng.normal(0.0, 0.03, SHAPE)
        time.learn(NAMES, {"operations": 1000.0 * used}, logs, None, np.ones(SHAPE[0], np.bool_), 0.001)
    used = np.geomspace(0.15, 0.88, SHAPE[0])[:, None] * np.ones(SHAPE)
    log_time = expected_by(time, {"operations": 1000.0 * used}).log_time[:, 0]
    off = log_time + np.log(1.0 - used[:, 0])
    assert np.abs(off - np.median(off)).max() < 0.1


@pytest.mark.parametrize("slope", [-0.6, 0.0, 1.0])
def test_an_open_loop_is_none_that_keeps_requests_in_flight(slope: float) -> None:
    """Also where more requests at once take less time each, as merged ones do."""
    rng, time = np.random.default_rng(10), ExpectedTime(SHIFT * 15.0)
    for _ in range(20):
        operations = 300.0 * np.exp(rng.normal(0.0, 0.3, SHAPE))
        time.learn_loop({"operations": operations}, slope * np.log(operations) + rng.normal(0.0, 0.03, SHAPE))
    assert time.state()["closed_loop"] is False


def test_a_load_that_only_one_had_excuses_no_more_than_its_own_times_there() -> None:
    """One of twelve has four times the load of the rest, and always took 1.2 times as long."""
    rng, time = np.random.default_rng(15), ExpectedTime(SHIFT * 15.0)
    operations = np.full(SHAPE, 100.0) * np.exp(rng.normal(0.0, 0.05, SHAPE))
    operations[3] *= 4.0

    def latency(factor: float) -> Values:
        return np.log(slowed(8.0 * np.exp(rng.normal(0.0, 0.05, SHAPE)), {3: factor}))

    for _ in range(20):
        time.learn(NAMES, {"operations": operations}, latency(1.2), None, np.ones(SHAPE[0], np.bool_), 0.01)
    old = expected_by(time, {"operations": operations}).doubt
    assert old[3].max() < np.log(1.35)


# --- as a detector tells -----------------------------------------------------------------------------------

MEMBERS, TICKS = 16, 4320


def by_jobs(rng: np.random.Generator, idle: float, busy: float) -> Values:
    """A load that jobs of 15 to 60 minutes raise from `idle` to `busy` on a quarter of the members each."""
    load = np.full((MEMBERS, TICKS), idle)
    for begin in range(0, TICKS, 60):
        members = rng.choice(MEMBERS, MEMBERS // 4, replace=False)
        load[members, begin : begin + int(rng.integers(60, 240))] = busy
    noisy: Values = load * np.exp(autocorrelated(rng, MEMBERS, TICKS, 0.5, 0.1))
    return noisy


def flat_latency(rng: np.random.Generator) -> Values:
    values: Values = 8.0 * np.exp(autocorrelated(rng, MEMBERS, TICKS, 0.4, 0.15))
    return values


def test_a_straggler_among_members_with_jobs_that_come_and_go_is_found() -> None:
    rng = np.random.default_rng(11)
    operations, values = by_jobs(rng, 50.0, 500.0), flat_latency(rng)
    values[5, 3000:3480] *= 3.0
    course = course_of(windows_of(values, {"operations": operations}))
    assert course.alarmed == {5}
    assert not np.array(course.alarms)[: (3000 - 60) // SHIFT].any()


def one_after_another(rng: np.random.Generator, slow: dict[int, float], since: int) -> tuple[Values, Values]:
    """Operations and latency of members that are busy for 20 intervals each, one after another."""
    turn = np.arange(TICKS) // 20 % MEMBERS
    busy = turn[None, :] == np.arange(MEMBERS)[:, None]
    operations = np.where(busy, 300.0 * np.exp(rng.normal(0.0, 0.1, (MEMBERS, TICKS))), 0.0)
    values = flat_latency(rng)
    for member, factor in slow.items():
        values[member, since:] *= factor
    return operations, np.where(busy, values, 0.0)


@pytest.mark.parametrize("slow", [{}, {5: 3.0}, {5: 3.0, 9: 2.0}])
def test_members_that_are_never_busy_together_are_held_against_what_the_others_showed(
    slow: dict[int, float],
) -> None:
    operations, values = one_after_another(np.random.default_rng(13), slow, since=2000)
    course = course_of(windows_of(values, {"operations": operations}))
    assert course.alarmed == set(slow)
    assert not np.array(course.alarms)[: (2000 - 60) // SHIFT].any()


def test_a_few_samples_at_a_time_name_a_straggler_before_its_third_burst() -> None:
    """Bursts of six samples, an hour apart: averages over windows still hold the hours before."""
    rng = np.random.default_rng(17)
    turn = np.arange(TICKS) // 6 % 40
    busy = turn[None, :] == 2 * np.arange(MEMBERS)[:, None]
    operations = np.where(busy, 300.0, 0.0)
    values = flat_latency(rng)
    values[5, 2400:] *= 2.0
    course = course_of(windows_of(np.where(busy, values, 0.0), {"operations": operations}))
    assert course.alarmed == {5}
    assert course.anomalous[: (2400 + 3 * 240) // SHIFT, 5].sum() >= 2


@pytest.mark.parametrize("slow", [{}, {5: 2.0}])
def test_a_single_peer_with_more_load_excuses_nobody(slow: dict[int, float]) -> None:
    """Two are busy at a time, at 0.3 and 0.8 of a queue's capacity; the straggler is at 0.3 each time."""
    rng = np.random.default_rng(19)
    turn = np.arange(TICKS) // 20
    light, heavy = turn % MEMBERS, (turn + 1 + turn // MEMBERS % 3) % MEMBERS
    heavy = np.where(heavy == 5, (heavy + 4) % MEMBERS, heavy)
    member = np.arange(MEMBERS)[:, None]
    used = np.select([member == light, member == heavy], [0.3, 0.8], 0.0)
    used *= np.exp(rng.normal(0.0, 0.03, used.shape))
    values = np.where(used > 0.0, flat_latency(rng) / (1.0 - used), 0.0)
    for component, factor in slow.items():
        values[component, 2000:] *= factor
    assert course_of(windows_of(values, {"operations": 1000.0 * used})).alarmed == set(slow)


def test_numbers_in_flight_that_nobody_else_has_accuse_nobody_in_the_first_windows() -> None:
    """Three of eight keep eight requests in flight, two four and three one, at a queue: 4.5 times as long."""
    rng = np.random.default_rng(18)
    depth = np.repeat([8.0, 4.0, 1.0], [3, 2, 3])[:, None] * np.ones((8, 20 * SHIFT))
    time = (depth + 1.0) * np.exp(rng.normal(0.0, 0.1, depth.shape))
    assert not course_of(windows_of(6.0 * time, {"operations": 5000.0 * depth / time})).alarmed


@pytest.mark.parametrize("ticks", [2, 5, 12, 40])
def test_single_members_with_few_samples_leave_no_unknown_evidence(ticks: int) -> None:
    """The first windows have one member each, too short for a spread of its own."""
    rng = np.random.default_rng(14)
    turn = np.arange(TICKS) // SHIFT % MEMBERS
    begun = np.arange(TICKS) % SHIFT < min(ticks, SHIFT)
    busy = (turn[None, :] == np.arange(MEMBERS)[:, None]) & begun
    operations = np.where(busy, 300.0, 0.0)
    values = np.where(busy, flat_latency(rng), 0.0)
    course = course_of(windows_of(values, {"operations": operations}))
    scores = np.concatenate([v.score[v.judged] for v in course.verdicts])
    assert np.isfinite(scores).all()
    assert not course.alarmed


def test_static_loads_eight_fold_apart_accuse_nobody() -> None:
    rng = np.random.default_rng(12)
    operations = np.geomspace(50.0, 400.0, MEMBERS)[:, None] * np.exp(
        autocorrelated(rng, MEMBERS, TICKS, 0.5, 0.1)
    )
    assert not course_of(windows_of(flat_latency(rng), {"operations": operations})).alarmed


def test_members_excused_by_their_load_vary_as_their_peers_do() -> None:
    """An M/M/1 queue, noisy: with an excuse that takes each tick to 0, the faster half is above theirs."""
    rng = np.random.default_rng(16)
    utilisation = np.geomspace(0.11, 0.9, MEMBERS)[:, None] * np.ones((MEMBERS, TICKS))
    values = 6.0 * np.exp(autocorrelated(rng, MEMBERS, TICKS, 0.0, 0.25)) / (1.0 - utilisation)
    operations = 5000.0 * utilisation
    assert not course_of(windows_of(values, {"operations": operations})).alarmed


def test_members_whose_loads_never_meet_are_held_against_their_own_past() -> None:
    """Four members an octave apart in an M/M/1 queue: no load was ever seen with three others."""
    rng = np.random.default_rng(17)
    utilisation = np.geomspace(0.11, 0.9, 4)[:, None] * np.ones((4, TICKS))
    values = 6.0 * np.exp(autocorrelated(rng, 4, TICKS, 0.0, 0.1)) / (1.0 - utilisation)
    operations = 5000.0 * utilisation
    healthy = course_of(windows_of(values, {"operations": operations}))
    assert not healthy.anomalous[healthy.anomalous.shape[0] // 4 :].any()
    values[1, TICKS // 2 :] *= 2.0
    ill = course_of(windows_of(values, {"operations": operations}))
    assert ill.anomalous[-1].tolist() == [False, True, False, False]


def test_what_doubt_excuses_makes_nobody_alike() -> None:
    """In each window five other members have more load than any had, and take longer by an unknown factor."""
    rng, ticks = np.random.default_rng(1), 1800
    operations = 100.0 * np.exp(autocorrelated(rng, MEMBERS, ticks, 0.5, 0.05))
    values = 8.0 * np.exp(autocorrelated(rng, MEMBERS, ticks, 0.4, 0.15))
    busier = np.zeros((ticks // SHIFT, MEMBERS), dtype=np.bool_)
    for number in range(ticks // SHIFT):
        busy = rng.choice(MEMBERS, 5, replace=False)
        busier[number, busy] = True
        span = slice(number * SHIFT, (number + 1) * SHIFT)
        operations[busy, span] *= 2.0 ** rng.uniform(1.0, 1.0 + 0.05 * number, 5)[:, None]
        values[busy, span] *= np.exp(np.abs(rng.normal(0.0, 0.3, 5)))[:, None]
    values *= np.exp(np.repeat(rng.normal(0.0, 0.08, (MEMBERS, ticks // SHIFT)), SHIFT, axis=1))
    course = course_of(windows_of(values, {"operations": operations}))
    assert not (course.anomalous & ~busier[1:])[5:].any()
    assert not course.alarmed


def test_queueing_under_loads_by_jobs_accuses_nobody() -> None:
    """Latencies of an M/M/1 queue, of at most 80 % utilisation."""
    rng = np.random.default_rng(13)
    utilisation = np.minimum(by_jobs(rng, 0.1, 0.65), 0.8)
    values = flat_latency(rng) / (1.0 - utilisation)
    assert course_of(windows_of(values)).alarmed  # it is their load that excuses them
    assert not course_of(windows_of(values, {"operations": 1500.0 * utilisation})).alarmed


def test_large_requests_that_take_longer_accuse_nobody() -> None:
    rng = np.random.default_rng(14)
    values, ones = slowed(flat_latency(rng), dict.fromkeys(range(4), 5.0)), np.ones((MEMBERS, TICKS))
    size = 16384.0 * np.exp(autocorrelated(rng, MEMBERS, TICKS, 0.5, 0.1))
    size[:4] *= 64.0
    load = {"operations": 100.0 * ones, "request_bytes": size}
    assert course_of(windows_of(values)).alarmed == set(range(4))  # it is their size that excuses them
    assert not course_of(windows_of(values, load)).alarmed
