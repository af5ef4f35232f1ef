import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.metrics.definition import Differences, Metric, SourceMetrics
from laggard_aggregator.windows import interval_metrics, store
from laggard_aggregator.windows.counter_block import Block
from laggard_aggregator.windows.interval_metrics import BRIDGE
from laggard_aggregator.windows.store import GroupStore
from tests.naive_store import StoreReading, store_differences
from tests.support.thorough import examples

SECOND = 1_000_000_000
D = 5 * SECOND
START = 1_800_000_000 * SECOND


def _rate(d: Differences) -> np.ndarray:
    return d["work"] / d.seconds


def _each(d: Differences) -> np.ndarray:
    return d["time"] * 1.0


SOURCE = SourceMetrics(
    source="made",
    defaults=("rate",),
    metrics={"rate": Metric("1/s", 1, ("work",), _rate), "each": Metric("1", 1, ("time",), _each)},
    load={"operations": Metric("1", 0, ("work",), lambda d: d["work"], amount=True)},
)
DETECT = DetectSettings(interval_seconds=5.0, window_samples=12, shift_samples=4)
LONG = replace(DETECT, window_samples=80)
GROUP = PeerGroup("g", "made", "", ("rate", "each"), DETECT)


def make(detect: DetectSettings = DETECT, history: int = 0) -> GroupStore:
    return GroupStore(replace(GROUP, detect=detect), SOURCE, history, START)


def give(
    into: GroupStore,
    component: str,
    readings: Sequence[StoreReading],
    *,
    origin: int = 1,
    changing: int = 1,
    received_ns: int | None = None,
) -> None:
    """A message of one component; readings are (tick, read, (work, time))."""
    rows = into.rows_of([component])
    into.set_origin(rows, origin)
    into.add(
        Block(
            indexes=rows,
            values=np.array([[r[2]] for r in readings], dtype=np.int64),
            tick_ns=np.array([r[0] for r in readings], dtype=np.int64),
            read_ns=np.array([r[1] for r in readings], dtype=np.int64),
            present=None,
            idle=1 - changing,
        ),
        readings[-1][0] if received_ns is None else received_ns,
    )


def at(seconds: float, work: int, time: int = 0, late_seconds: float = 0.0) -> StoreReading:
    tick = START + round(seconds * SECOND)
    return (tick, tick + round(late_seconds * SECOND), (work, time))


def rates(window: GroupWindow | None, component: str = "a") -> list[float]:
    assert window is not None
    return [float(v) for v in window.metrics["rate"][window.components.index(component)]]


def rates_at_end(into: GroupStore, seconds: float) -> list[float]:
    """The rate in each interval up to `seconds`, oldest first, without leading NaN."""
    values = rates(into.close(START + round(seconds * SECOND)))
    present = [i for i, value in enumerate(values) if not math.isnan(value)]
    return values[present[0] :]


def test_a_rate_is_the_difference_between_the_last_readings_of_two_intervals() -> None:
    kept = make()
    give(kept, "a", [at(s, 10 * s) for s in range(1, 6)])
    give(kept, "a", [at(s, 10 * s + (5 if s == 10 else 0)) for s in range(6, 11)])
    assert rates_at_end(kept, 20) == [11.0, *[pytest.approx(math.nan, nan_ok=True)] * 2]


def test_the_time_of_reading_counts_and_not_the_nominal_one() -> None:
    kept = make()
    give(kept, "a", [at(5, 0), at(10, 100, late_seconds=0.25)])
    assert rates_at_end(kept, 10) == [pytest.approx(100 / 5.25)]


def test_missing_intervals_are_bridged_with_their_mean_up_to_a_bound() -> None:
    kept = make()
    give(kept, "a", [at(5, 0), at(5 + 5 * BRIDGE, 400)])
    values = rates_at_end(kept, 60)
    assert values[:BRIDGE] == [20.0] * BRIDGE
    other = make()
    give(other, "a", [at(5, 0), at(10 + 5 * BRIDGE, 400), at(15 + 5 * BRIDGE, 500)])
    assert rates_at_end(other, 60)[0] == 20.0
    assert sum(not math.isnan(v) for v in rates_at_end(other, 70)) == 1


def test_amounts_are_shared_out_over_a_bridge() -> None:
    kept = make()
    give(kept, "a", [at(5, 0), at(15, 400)])
    window = kept.close(START + 15 * SECOND)
    assert window is not None
    assert window.load["operations"][0, -2:].tolist() == [200.0, 200.0]


def test_a_bridge_reaches_back_into_a_window_that_was_closed() -> None:
    kept = make()
    give(kept, "a", [at(5, 0), at(10, 50)])
    assert math.isnan(rates(kept.close(START + 20 * SECOND))[-1])
    give(kept, "a", [at(25, 200)])
    assert rates(kept.close(START + 40 * SECOND))[-7:-3] == [10.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize("split", [False, True])
def test_a_reset_cuts_out_its_interval_even_where_the_counter_outgrew_itself(split: bool) -> None:
    kept = make()
    rest = [at(12, 3), at(15, 5_000)]
    give(kept, "a", [at(5, 100), at(10, 200)] + ([] if split else rest))
    if split:
        give(kept, "a", rest)
    give(kept, "a", [at(20, 5_100)])
    values = rates_at_end(kept, 20)
    assert values[0] == 20.0
    assert math.isnan(values[1])
    assert values[2] == 20.0
    assert kept.counts.resets == 1


def test_counters_of_another_origin_do_not_go_on_from_those_before() -> None:
    kept = make()
    give(kept, "a", [at(5, 100), at(10, 200)], origin=1)
    give(kept, "a", [at(15, 900), at(20, 1_000)], origin=2)
    values = rates_at_end(kept, 20)
    assert values[0] == 20.0
    assert math.isnan(values[1])
    assert values[2] == 20.0


def test_a_wrap_around_2_to_the_63_is_no_spike() -> None:
    kept = make()
    give(kept, "a", [at(5, 2**63 - 10), at(10, -(2**63) + 40), at(15, -(2**63) + 90)])
    values = rates_at_end(kept, 15)
    assert values[-1] == 10.0
    assert len(values) == 1


def test_late_readings_are_counted_and_skipped() -> None:
    kept = make()
    give(kept, "a", [at(s, 10 * s) for s in range(5, 25, 5)])
    before = rates(kept.close(START + 20 * SECOND))
    give(kept, "a", [at(10, 999_999), at(20, 10**9), at(25, 250)])
    assert kept.counts.late == 2
    after = rates(kept.close(START + 40 * SECOND))
    assert after[5:8] == before[9:12] == [10.0] * 3
    assert after[8] == 10.0


def test_readings_of_the_future_are_counted_and_skipped() -> None:
    kept = make()
    ahead = store.FUTURE_NS + BRIDGE * D
    give(kept, "a", [at(5, 1), at(100, 2)], received_ns=START + 100 * SECOND - ahead - 1)
    assert kept.counts.future == 1
    give(kept, "a", [at(100, 2)], received_ns=START + 100 * SECOND - ahead)
    assert kept.counts.future == 1


def test_messages_may_come_out_of_order() -> None:
    kept, ordered = make(), make()
    messages = [[at(s, s * s) for s in range(first, first + 5)] for first in range(1, 20, 5)]
    for message in messages:
        give(ordered, "a", message)
    for place in (3, 0, 2, 1):
        give(kept, "a", messages[place])
    assert rates_at_end(kept, 20) == rates_at_end(ordered, 20)


@pytest.mark.parametrize("agent_seconds", [1, 2, 5, 10, 20])
def test_agents_of_any_interval_give_the_same_rate(agent_seconds: int) -> None:
    kept = make()
    give(kept, "a", [at(s, 7 * s) for s in range(0 + agent_seconds, 61, agent_seconds)])
    values = rates(kept.close(START + 60 * SECOND))
    assert [round(v, 4) for v in values if not math.isnan(v)] == [7.0] * (12 - max(agent_seconds // 5, 1))


def test_absent_components_are_left_out_and_live_ones_counted() -> None:
    kept = make()
    give(kept, "a", [at(s, s) for s in range(5, 65, 5)])
    give(kept, "b", [at(5, 1), at(10, 2)])
    kept.rows_of(["never"])
    window = kept.close(START + 60 * SECOND)
    assert window is not None
    assert window.components == ("a", "b")
    assert (kept.live, len(kept.components)) == (1, 3)
    assert window.metrics["rate"].dtype == np.float64
    window = kept.close(START + 80 * SECOND)
    assert window is not None
    assert window.components == ("a",)
    assert kept.close(START + 600 * SECOND) is None


def test_history_lies_before_the_window() -> None:
    kept = make(history=3)
    give(kept, "a", [at(s, s * s) for s in range(5, 80, 5)])
    window = kept.close(START + 75 * SECOND)
    assert window is not None
    assert window.metrics["rate"].shape == (1, 15)
    assert (window.start, window.end) == (START / 1e9 + 15, START / 1e9 + 75)
    assert not np.isnan(window.metrics["rate"][0, 1:]).any()


def test_rows_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_COMPONENTS", 100)
    kept = make()
    give(kept, "c0", [at(5, 1)])
    rows = kept.rows_of(f"c{n}" for n in range(120))
    assert rows[:100].tolist() == list(range(100))
    assert (rows[100:] == -1).all()
    give(kept, "c0", [at(10, 11)])
    assert rates(kept.close(START + 10 * SECOND), "c0")[-1] == 2.0


def test_open_intervals_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_metrics, "MAX_SLOTS", 64)
    kept = make()
    give(kept, "a", [at(5, 5), at(10, 10)])
    give(kept, "a", [at(5 * 64, 320)])
    give(kept, "a", [at(5 * 65, 325)])
    assert kept.counts.future == 1
    assert rates_at_end(kept, 20)[0] == 1.0


def test_a_long_pause_leaves_only_what_the_window_holds() -> None:
    kept = make()
    give(kept, "a", [at(5, 5), at(10, 10)])
    kept.close(START + 20 * SECOND)
    assert kept.close(START + 10**6 * 5 * SECOND) is None
    later = 10**6 * 5
    give(kept, "a", [at(later + 5, 5), at(later + 10, 10)])
    assert rates(kept.close(START + (later + 20) * SECOND))[-3] == 1.0


@st.composite
def _stories(draw: st.DrawFn) -> list[list[StoreReading] | int]:
    """Messages of one component, out of order, with gaps, resets and window closes in between."""
    step = draw(st.sampled_from([1, 2, 3, 5, 7, 10, 30]))
    work = time = 0
    messages: list[list[StoreReading]] = []
    seconds = 0
    for _ in range(draw(st.integers(1, 14))):
        seconds += draw(st.sampled_from([0, 0, 0, 1, 2, 8])) * step
        message = []
        for _ in range(draw(st.integers(1, 4))):
            seconds += step
            work, time = work + draw(st.integers(0, 50)), time + draw(st.integers(0, 9))
            if draw(st.integers(0, 12)) == 0:
                work = draw(st.integers(0, 400))
            message.append(at(seconds, work, time, draw(st.sampled_from([0.0, 0.01, 0.3]))))
        messages.append(message)
    swaps = draw(st.lists(st.integers(0, max(len(messages) - 2, 0)), max_size=4))
    for swap in swaps:
        messages[swap : swap + 2] = reversed(messages[swap : swap + 2])
    story: list[list[StoreReading] | int] = []
    end = START
    for message in messages:
        story.append(message)
        if draw(st.integers(0, 3)) == 0:
            end += draw(st.integers(1, 3)) * 4 * D
            story.append(end)
    return story


@settings(max_examples=examples(150), deadline=None)
@given(_stories())
def test_the_store_is_its_slow_twin(story: list[list[StoreReading] | int]) -> None:
    kept = make(LONG)
    end = START
    for item in story:
        if isinstance(item, int):
            kept.close(item)
            end = max(end, item)
        else:
            give(kept, "a", item, received_ns=item[-1][0])
            end = max(end, item[-1][0])
    end = (end // D + 1) * D
    expected = store_differences(story, D, BRIDGE)
    window = kept.close(end)
    intervals = range(end // D - LONG.window_samples + 1, end // D + 1)
    for column, interval in enumerate(intervals):
        rises, seconds, span = expected.get(interval, ((math.nan, math.nan), 1.0, 1))
        rate = math.nan if window is None else window.metrics["rate"][0, column]
        each = math.nan if window is None else window.metrics["each"][0, column]
        operations = math.nan if window is None else window.load["operations"][0, column]
        assert rate == pytest.approx(rises[0] / seconds, rel=1e-6, nan_ok=True), interval
        assert each == pytest.approx(rises[1], rel=1e-6, nan_ok=True), interval
        assert operations == pytest.approx(rises[0] / span, rel=1e-6, nan_ok=True), interval
