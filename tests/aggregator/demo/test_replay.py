import asyncio
import itertools
from pathlib import Path

import pytest

from laggard_aggregator.demo.recording import SPEEDS, Recording, Sample, read_recording
from laggard_aggregator.demo.replay import Replay, compressed, repeated
from tests.support.builders import recordings


class SteppingClock:
    """Every look at it takes `step_ns`; sleeping takes no time but its own."""

    def __init__(self, step_ns: int) -> None:
        self.now_ns = 1_800_000_000_123_456_789
        self.step_ns = step_ns

    def wall_ns(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.wall_ns()


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return read_recording(recordings.write(tmp_path / "r.xz", recordings.text()))


def roots(tmp_path: Path) -> dict[str, Path]:
    return {lun: tmp_path / f"node-{lun}" for lun in recordings.LUNS}


class Watched(Replay):
    """Sleeps by its clock alone, notes what it places, and stops after `until` recorded seconds."""

    def begin(self, until: int) -> list[int]:
        """Recorded seconds in the order in which they were placed, the first by `prepare`."""
        self.placed: list[int] = []
        self.until = until
        self.stop = asyncio.Event()
        self.prepare()
        asyncio.run(self.run(self.stop))
        return self.placed

    def place(self, sample: Sample) -> None:
        super().place(sample)
        self.placed.append(round(self.recorded_seconds))
        if self.recorded_seconds >= self.until:
            self.stop.set()

    async def _sleep_until(self, due_ns: int, stop: asyncio.Event) -> None:
        assert isinstance(self._clock, SteppingClock)
        self._clock.now_ns = max(self._clock.now_ns, due_ns)


def but_busy(row: str) -> list[str]:
    """A row without the time with I/O in progress, which depends on the speed."""
    words = row.split()
    return words[:12] + words[13:]


def counters(root: Path) -> list[int]:
    return [int(word) for word in (root / "diskstats").read_text().split()[3:]]


def test_every_root_starts_with_its_own_first_row(tmp_path: Path, recording: Recording) -> None:
    replay = Replay(recording, roots(tmp_path), 10, SteppingClock(0))
    replay.prepare()
    for lun, root in roots(tmp_path).items():
        assert (root / "diskstats").read_text() == recordings.row(lun, 0) + "\n"
        assert [path.name for path in root.iterdir()] == ["diskstats"]


def test_a_replay_that_keeps_up_places_every_second_in_order(tmp_path: Path, recording: Recording) -> None:
    replay = Watched(recording, roots(tmp_path), 10, SteppingClock(20_000_000))
    assert replay.begin(60) == [0, *range(61)]
    placed = (tmp_path / "node-loop23" / "diskstats").read_text()
    assert but_busy(placed) == but_busy(recordings.row("loop23", 60))
    assert replay.recorded_seconds == pytest.approx(60.00006)
    assert replay.over


def test_a_replay_that_cannot_keep_up_skips_and_stays_on_time(tmp_path: Path, recording: Recording) -> None:
    clock = SteppingClock(450_000_000)
    replay = Watched(recording, roots(tmp_path), 10, clock)
    assert len(replay.begin(60)) < 20
    assert replay.begun_ns is not None
    assert clock.now_ns - replay.begun_ns < 7_500_000_000


def test_rows_change_half_a_tick_after_the_agents_read_from_a_windows_border_on(
    tmp_path: Path, recording: Recording
) -> None:
    replay = Watched(recording, roots(tmp_path), 10, SteppingClock(1_000_000), align_ticks=30)
    replay.begin(5)
    assert replay.begun_ns is not None
    assert replay.begun_ns % 3_000_000_000 == 50_000_000
    assert replay.recorded_at(replay.begun_ns / 1e9 + 2.5) == pytest.approx(25.0)
    assert not replay.over


def test_after_the_end_the_recovered_part_goes_on(tmp_path: Path, recording: Recording) -> None:
    """Counters rise on as they did in the recording: 50 reads a second of 2 ms each, for all LUNs alike."""
    replay = Watched(recording, roots(tmp_path), 10, SteppingClock(1_000_000))
    placed = replay.begin(150)
    assert placed == [0, *range(151)]
    for root in roots(tmp_path).values():
        assert counters(root)[0] == 50 * 150
        assert counters(root)[2] == 8 * 50 * 150
    slow = counters(tmp_path / "node-loop23")[3] - counters(tmp_path / "node-loop22")[3]
    assert slow == 18 * 50 * 20  # what the fault cost, once
    placed_row = (tmp_path / "node-loop23" / "diskstats").read_text()
    assert but_busy(placed_row) == but_busy(recordings.row("loop23", 150))


def test_what_is_in_flight_does_not_add_up(recording: Recording) -> None:
    def busy(sample: Sample) -> Sample:
        rows = {}
        for lun, row in sample.rows.items():
            words = row.split()
            words[11] = b"3"
            rows[lun] = b" ".join(words) + b"\n"
        return Sample(sample.time, rows)

    going_on = repeated(tuple(map(busy, recording.recovered())))
    for sample in itertools.islice(going_on, 100):
        assert {row.split()[11] for row in sample.rows.values()} == {b"3"}


def test_stop_ends_it_at_once(tmp_path: Path, recording: Recording) -> None:
    async def stopped() -> float:
        stop = asyncio.Event()
        replay = Replay(recording, roots(tmp_path), 1, SteppingClock(1))
        replay.prepare()
        running = asyncio.create_task(replay.run(stop))
        await asyncio.sleep(0)
        stop.set()
        await running
        return replay.recorded_seconds

    assert asyncio.run(stopped()) == 0


def test_every_speed_makes_a_tick_that_an_agent_can_sample() -> None:
    for speed in SPEEDS:
        assert 1_000_000_000 % speed == 0
        assert 1 / speed >= 0.05


@pytest.mark.parametrize("speed", SPEEDS)
def test_a_device_is_never_busy_for_more_than_the_time_that_passed(speed: int) -> None:
    recording = read_recording()
    played = list(compressed(recording.samples, speed))
    for before, after in itertools.pairwise(played):
        passed_ms = 1000 * (after.time - before.time) / speed
        for lun in recording.luns:
            rise = int(after.rows[lun].split()[12]) - int(before.rows[lun].split()[12])
            assert 0 <= rise <= passed_ms + 1 or speed == 1, "a kernel's own figure may be a tick late"
    for lun in recording.luns:
        first, last = (sample.rows[lun].split() for sample in (recording.samples[0], recording.samples[-1]))
        assert played[-1].rows[lun].split()[:12] == last[:12]
        recorded, shown = (
            int(last[12]) - int(first[12]),
            int(played[-1].rows[lun].split()[12]) - int(first[12]),
        )
        assert recorded / speed <= shown + 1 <= recorded + 2
