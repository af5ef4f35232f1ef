"""Stops of one device among its peers: found by how often they are; what all of them do is silent."""

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from laggard_aggregator.detect.interface import GroupWindow, StopTally, Verdicts, without
from laggard_aggregator.detect.laggard.detector import LaggardDetector
from laggard_aggregator.detect.laggard.stops import HORIZON_SECONDS, MAX_KEPT, Stops
from laggard_aggregator.detect.settings import DetectSettings
from tests import naive_stops

SERVICE, LOAD = 0.006, 0.3
ILL = 3

Pauses = list[tuple[int, float, float]]
"""Member, begin and seconds."""


class Devices:
    """A group whose disks serve requests one by one at `load` of their capacity; all arrays (C, T)."""

    def __init__(
        self, seed: int, members: int = 12, hours: float = 6.0, interval: float = 15.0, load: float = LOAD
    ) -> None:
        self.load, self.rate = load, load / SERVICE
        self.rng = np.random.default_rng(seed)
        shape = (members, round(hours * 3600.0 / interval))
        self.interval = interval
        self.names = tuple(f"oss/{c}" for c in range(members))
        self.done = self.rng.poisson(self.rate * interval, shape).astype(np.float64)
        self.busy = self.done * SERVICE * self.rng.normal(1.0, 0.02, shape)
        self.waited = self.done * SERVICE / (1.0 - load) * self.rng.normal(1.0, 0.05, shape)

    def stop(self, pauses: Pauses, *, closed: bool = False) -> None:
        """Requests that arrive meanwhile are served in the sample after; `closed`: none do, four wait."""
        for member, begin, seconds in pauses:
            first = int(begin // self.interval)
            rest = seconds
            for t in range(first, self.done.shape[1]):
                here = min((t + 1) * self.interval - max(begin, t * self.interval), rest)
                if here <= 0.0:
                    break
                rest -= here
                self.done[member, t] *= 1.0 - here / self.interval
                self.busy[member, t] = self.done[member, t] * SERVICE + here
                self.waited[member, t] *= 1.0 - here / self.interval
            if not closed:
                self.done[member, t] += self.rate * seconds
                self.busy[member, t] += self.load * seconds
                self.waited[member, t] += self.rate * seconds**2 / 2.0 / (1.0 - self.load)
            else:
                self.waited[member, t] += 4.0 * seconds

    def windows(self, window: int = 60, shift: int = 30, load: bool = True) -> list[GroupWindow]:
        waits = np.divide(1000.0 * self.waited, self.done, out=np.zeros_like(self.done), where=self.done > 0)
        loads = {
            "operations": self.done,
            "throughput": self.done * 65536.0 / self.interval,
            "busy_share": self.busy / self.interval,
        }
        made = []
        for end in range(window, self.done.shape[1] + 1, shift):
            at = slice(end - window, end)
            made.append(
                GroupWindow(
                    "g",
                    self.names,
                    at.start * self.interval,
                    end * self.interval,
                    0,
                    {"await": waits[:, at]},
                    {name: values[:, at] for name, values in loads.items() if load or name != "busy_share"},
                )
            )
        return made

    @property
    def settings(self) -> DetectSettings:
        return DetectSettings(interval_seconds=self.interval, tests_at_once=len(self.names))


def every(seconds: float, period: float, begin: float, end: float, member: int = ILL) -> Pauses:
    return [(member, float(at), seconds) for at in np.arange(begin, end, period)]


def verdicts_of(devices: Devices, *, load: bool = True) -> list[Verdicts]:
    detector = LaggardDetector(devices.settings, "await")
    return [detector.observe(window) for window in devices.windows(load=load)]


def told(verdicts: list[Verdicts]) -> Iterator[tuple[int, str, StopTally]]:
    for at, one in enumerate(verdicts):
        for name, tally in one.stops.items():
            yield at, name, tally


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(("interval", "hours"), [(15.0, 6.0), (1.0, 2.5)])
@pytest.mark.parametrize(("seconds", "period"), [(2.5, 307.0), (5.0, 613.0), (10.0, 1207.0)])
def test_a_device_that_stops_is_found(
    seconds: float, period: float, interval: float, hours: float, closed: bool
) -> None:
    devices = Devices(1, hours=hours, interval=interval)
    devices.stop(every(seconds, period, 3600.0, hours * 3600.0), closed=closed)
    verdicts = verdicts_of(devices)
    named = {name for _, name, _ in told(verdicts)}
    assert named == {f"oss/{ILL}"}
    assert verdicts[-1].anomalous.nonzero()[0].tolist() == [ILL]
    tally = verdicts[-1].stops[f"oss/{ILL}"]
    made = min(HORIZON_SECONDS, (hours - 1.0) * 3600.0) / period
    assert 0.7 * made - 1.0 <= tally.count <= made + 1.0
    assert tally.longest == pytest.approx(seconds, abs=1.0)
    assert tally.peers == 0.0


def test_the_text_names_number_lengths_time_lost_and_peers() -> None:
    assert StopTally(6, 2.1, 9.8, 40.3, 7200.0, 0.0).text() == (
        "6 stops of 2 to 10 s in the last 2 hours, 40 s lost; peers: none"
    )
    assert StopTally(9, 4.9, 5.1, 45.0, 7200.0, 1.0).text() == (
        "9 stops of 5 s in the last 2 hours, 45 s lost; peers: 1"
    )


def test_without_busy_time_nothing_is_told() -> None:
    devices = Devices(1)
    devices.stop(every(5.0, 600.0, 3600.0, 21600.0))
    assert not list(told(verdicts_of(devices, load=False)))


def test_garbage_collection_of_all_is_silent() -> None:
    devices = Devices(2, hours=12.0)
    for member in range(len(devices.names)):
        begins = np.cumsum(devices.rng.exponential(90.0, 480))
        begins = begins[begins < 12 * 3600.0 - 20.0]
        lengths = devices.rng.uniform(0.1, 1.0, begins.size)
        devices.stop([(member, float(b), float(s)) for b, s in zip(begins, lengths, strict=True)])
    verdicts = verdicts_of(devices)
    assert not list(told(verdicts))
    assert not np.any([v.anomalous for v in verdicts])


def test_stops_of_all_are_silent() -> None:
    devices = Devices(3)
    for member in range(len(devices.names)):
        devices.stop(every(5.0, 600.0, 60.0 * member, 21600.0, member))
    assert not list(told(verdicts_of(devices)))


def test_two_collections_in_neighbouring_samples_are_no_stop() -> None:
    devices = Devices(4, load=0.05)
    for at in np.arange(3600.0, 21600.0, 600.0):
        devices.stop([(ILL, float(at) + 3.0, 1.0), (ILL, float(at) + 18.0, 1.0)])
    assert not list(told(verdicts_of(devices)))


def test_queues_of_bursts_are_no_stops() -> None:
    devices = Devices(5)
    for t in range(240, devices.done.shape[1], 40):
        devices.done[ILL, t] = devices.interval / SERVICE
        devices.busy[ILL, t] = devices.interval
        devices.waited[ILL, t] = devices.done[ILL, t] * 3.0
    assert not list(told(verdicts_of(devices)))


def test_one_episode_of_many_stops_is_no_evidence() -> None:
    devices = Devices(6)
    devices.stop(every(4.0, 120.0, 7200.0, 8900.0))
    assert not list(told(verdicts_of(devices)))


def test_it_ends_after_the_last_stop() -> None:
    devices = Devices(7, hours=10.0)
    devices.stop(every(5.0, 600.0, 3600.0, 4 * 3600.0))
    windows = devices.windows()
    last = max(at for at, _, _ in told(verdicts_of(devices)))
    assert 4 * 3600.0 < windows[last].end <= 4 * 3600.0 + 3 * 600.0 + 450.0


def test_a_stop_across_windows_is_one() -> None:
    devices = Devices(8)
    devices.stop([(ILL, 450.0 * k - 2.5, 5.0) for k in range(10, 48)])
    verdicts = verdicts_of(devices)
    tally = verdicts[-1].stops[f"oss/{ILL}"]
    assert tally.count == pytest.approx(HORIZON_SECONDS / 450.0, abs=1.0)
    assert tally.shortest > 4.0


def test_missing_samples_are_no_stops() -> None:
    devices = Devices(9)
    gaps = devices.rng.random(devices.done.shape) < 0.1
    devices.done[gaps] = np.nan
    assert not list(told(verdicts_of(devices)))


def test_the_twin_judges_alike() -> None:
    devices = Devices(10, members=8)
    devices.stop(every(4.0, 500.0, 3600.0, 21600.0))
    devices.stop(every(2.0, 900.0, 100.0, 21600.0, 5))
    devices.stop(every(7.0, 2500.0, 100.0, 21600.0, 6), closed=True)
    devices.done[devices.rng.random(devices.done.shape) < 0.03] = np.nan
    devices.done[2, 300:500] = devices.busy[2, 300:500] = devices.waited[2, 300:500] = 0.0
    fast, slow = Stops(devices.settings), naive_stops.NaiveStops(15.0, 8)
    scores = []
    for window in devices.windows(30, 30):
        fast.add(window.components, window.metrics["await"], window.load, window.start)
        series = {
            name: [
                naive_stops.Sample(
                    float(n), 15.0 * float(b), 15.0 * float(np.nan_to_num(m)), float(w) / 1000.0
                )
                for n, b, m, w in zip(*(of[c] for of in columns), strict=True)
            ]
            for c, name in enumerate(window.components)
            for columns in [
                (
                    window.load["operations"],
                    window.load["busy_share"],
                    window.load["throughput"],
                    window.metrics["await"],
                )
            ]
        }
        slow.add(series, window.start)
        found, expected = (
            fast.judge(window.components, window.end, 0),
            slow.judge(window.components, window.end),
        )
        assert found.score == pytest.approx(
            [expected[name] for name in window.components], rel=1e-6, abs=1e-9
        )
        scores.append(found.score)
    assert (np.array(scores).max(axis=0) >= 1.0).tolist() == [c in {3, 5} for c in range(8)]


def test_it_goes_on_from_its_state_and_from_one_without_stops() -> None:
    devices = Devices(11)
    devices.stop(every(5.0, 600.0, 3590.0, 21600.0))
    windows, whole = devices.windows(), verdicts_of(devices)
    detector = LaggardDetector(devices.settings, "await")
    for window, expected in zip(windows, whole, strict=True):
        verdicts = detector.observe(window)
        assert verdicts.stops == expected.stops
        np.testing.assert_array_equal(verdicts.score, expected.score)
        state = json.loads(json.dumps(detector.state()))
        detector = LaggardDetector(devices.settings, "await")
        detector.restore(state)
    before = {name: part for name, part in detector.state().items() if name != "stops"}
    detector.restore({**before, "version": 11})  # the last without stops
    assert not detector.observe(windows[-1]).stops


def test_order_and_forgotten_components() -> None:
    devices = Devices(12)
    devices.stop(every(5.0, 600.0, 3600.0, 21600.0))
    one, other = (Stops(devices.settings) for _ in range(2))
    order = np.arange(len(devices.names))[::-1]
    for window in devices.windows(30, 30):
        one.add(window.components, window.metrics["await"], window.load, window.start)
        turned = replace(
            window,
            components=window.components[::-1],
            metrics={"await": window.metrics["await"][order]},
            load={name: values[order] for name, values in window.load.items()},
        )
        other.add(turned.components, turned.metrics["await"], turned.load, turned.start)
        first = one.judge(window.components, window.end, 0)
        second = other.judge(turned.components, window.end, 0)
        assert first.told == second.told
        np.testing.assert_array_equal(first.score, second.score[order])
    one.forget([f"oss/{ILL}"])
    left = without(window, [f"oss/{ILL}"])
    assert isinstance(left, GroupWindow)
    assert not one.judge(left.components, left.end, 0).told
    assert f"oss/{ILL}" not in json.dumps(one.state())


def test_kept_stops_are_bounded() -> None:
    devices = Devices(13)
    devices.stop(every(3.0, 70.0, 100.0, 21600.0))
    stops = Stops(devices.settings)
    for window in devices.windows(30, 30):
        stops.add(window.components, window.metrics["await"], window.load, window.start)
    assert len(stops.state()["stops"][f"oss/{ILL}"]) == MAX_KEPT


@pytest.mark.parametrize("stops", [{"x": [[1.0, 2.0]]}, {"oss/3": [[1.0]]}, {"oss/3": [["a", 1.0]]}])
def test_a_damaged_state_is_an_error(stops: object) -> None:
    devices = Devices(14, hours=0.5)
    known = Stops(devices.settings)
    window = devices.windows(30, 30)[0]
    known.add(window.components, window.metrics["await"], window.load, window.start)
    with pytest.raises((ValueError, TypeError, KeyError)):
        Stops(devices.settings).restored({**known.state(), "stops": stops})
