import asyncio
from pathlib import Path

import pytest

from laggard_aggregator.demo.recording import Recording, read_recording
from laggard_aggregator.demo.replay import SPEEDS, Replay
from tests.aggregator.demo import made


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
    return read_recording(made.write(tmp_path / "r.xz", made.text()))


def roots(tmp_path: Path) -> dict[str, Path]:
    return {lun: tmp_path / f"node-{lun}" for lun in made.LUNS}


class Watched(Replay):
    """Remembers the position of everything it placed."""

    def prepare(self) -> None:
        self.placed: list[int] = []
        super().prepare()

    def place(self, sample) -> None:  # type: ignore[no-untyped-def]
        self.placed.append(self.position)
        super().place(sample)

    async def _sleep_until(self, due_ns: int, stop: asyncio.Event) -> None:
        assert isinstance(self._clock, SteppingClock)
        self._clock.now_ns = max(self._clock.now_ns, due_ns)


def test_every_root_starts_with_its_own_first_row(tmp_path: Path, recording: Recording) -> None:
    replay = Replay(recording, roots(tmp_path), 10, SteppingClock(0))
    replay.prepare()
    for lun, root in roots(tmp_path).items():
        assert (root / "diskstats").read_text() == made.row(lun, 0) + "\n"
        assert [path.name for path in root.iterdir()] == ["diskstats"]


def test_a_replay_that_keeps_up_places_every_second_in_order(tmp_path: Path, recording: Recording) -> None:
    replay = Watched(recording, roots(tmp_path), 10, SteppingClock(20_000_000))
    replay.prepare()
    asyncio.run(replay.run(asyncio.Event()))
    assert replay.placed == list(range(61))
    assert (tmp_path / "node-loop23" / "diskstats").read_text() == made.row("loop23", 60) + "\n"
    assert replay.recorded_seconds == pytest.approx(60.00006)


def test_a_replay_that_cannot_keep_up_skips_and_ends_on_time(tmp_path: Path, recording: Recording) -> None:
    clock = SteppingClock(450_000_000)
    replay = Watched(recording, roots(tmp_path), 10, clock)
    replay.prepare()
    asyncio.run(replay.run(asyncio.Event()))
    assert replay.position == 60
    assert len(replay.placed) < 20
    assert replay.begun_ns is not None
    assert clock.now_ns - replay.begun_ns < 7_500_000_000


def test_rows_change_half_a_tick_after_the_agents_read(tmp_path: Path, recording: Recording) -> None:
    replay = Watched(recording, roots(tmp_path), 10, SteppingClock(1_000_000))
    replay.prepare()
    asyncio.run(replay.run(asyncio.Event()))
    assert replay.begun_ns is not None
    assert replay.begun_ns % 100_000_000 == 50_000_000
    assert replay.recorded_at(replay.begun_ns / 1e9 + 2.5) == pytest.approx(25.0)


def test_stop_ends_it_at_once(tmp_path: Path, recording: Recording) -> None:
    async def stopped() -> int:
        stop = asyncio.Event()
        replay = Replay(recording, roots(tmp_path), 1, SteppingClock(1))
        replay.prepare()
        running = asyncio.create_task(replay.run(stop))
        await asyncio.sleep(0)
        stop.set()
        await running
        return replay.position

    assert asyncio.run(stopped()) <= 1


def test_every_speed_makes_a_tick_that_an_agent_can_sample() -> None:
    for speed in SPEEDS:
        assert 1_000_000_000 % speed == 0
        assert 1 / speed >= 0.05
