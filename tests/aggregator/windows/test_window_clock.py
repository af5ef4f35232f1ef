import random
from itertools import pairwise

import pytest

from laggard_aggregator.windows.schedule import CHECKS, UNCONFIRMED_NS, WindowClock
from tests.support.clock import FakeClock

CHECK_SECONDS = 5.0
DELAYS = (0.0, 0.3, 0.9, 5.0, 9.0)
"""From the last reading of a batch to its receipt, seconds; the median is under a second."""
HOURS = 7200.0


def right(host: FakeClock, clock: WindowClock, true_ns: int, count: int = 5) -> list[int]:
    """The offsets of `count` nodes whose clocks are right."""
    return [true_ns - round(delay * 1e9) - clock.wall_ns() for delay in DELAYS[:count]]


def checked(host: FakeClock, clock: WindowClock, wrong_seconds: float, times: int, count: int = 5) -> bool:
    """Checks `times` times; whether it jumped. `wrong_seconds`: the host's clock minus the true time."""
    jumped = False
    for _ in range(times):
        host.sleep(CHECK_SECONDS)
        true_ns = host.wall_ns() - round(wrong_seconds * 1e9)
        jumped |= clock.check(right(host, clock, true_ns, count), known=True)
    return jumped


def is_confirmed(clock: WindowClock) -> bool:
    """Whether it is now; it may change with every check."""
    return clock.confirmed


@pytest.mark.parametrize("seconds", [HOURS, -HOURS, 86400.0 * 400, 30.0, -30.0, 1e9])
def test_a_step_of_the_host_alone_is_noticed_and_not_followed(seconds: float) -> None:
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    checked(host, clock, 0.0, 3)
    before = clock.wall_ns()
    host.step(seconds)
    assert clock.wall_ns() == before
    assert not checked(host, clock, seconds, 100)
    assert (clock.steps, clock.difference_ns) == (1, round(seconds * 1e9))
    assert clock.confirmed
    host.step(-seconds)
    assert not checked(host, clock, 0.0, 100)
    assert (clock.steps, clock.difference_ns) == (2, 0)


@pytest.mark.parametrize("seconds", [HOURS, -HOURS, 30.0, 3.0])
def test_a_step_of_the_host_that_corrects_it_is_followed(seconds: float) -> None:
    """As after a suspended machine, or a start before its clock was set: the nodes' clocks are right."""
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    host.step(seconds)
    assert checked(host, clock, 0.0, CHECKS)
    assert clock.difference_ns == 0
    assert not checked(host, clock, 0.0, 1)
    assert clock.confirmed


@pytest.mark.parametrize("seconds", [HOURS, -HOURS])
def test_a_clock_that_is_wrong_from_the_start_follows_most_nodes(seconds: float) -> None:
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    assert not is_confirmed(clock)
    assert checked(host, clock, seconds, CHECKS)
    assert abs(clock.difference_ns / 1e9 - seconds) < 1.0
    assert checked(host, clock, seconds, 1) is False
    assert is_confirmed(clock)
    host.step(-seconds)
    checked(host, clock, 0.0, 1000)
    assert clock.difference_ns == 0


@pytest.mark.parametrize("seconds", [HOURS, -HOURS, -86400.0 * 90])
def test_checks_that_hear_no_node_decide_nothing(seconds: float) -> None:
    """Nodes that send every half a minute, with a delay of up to their interval."""
    host = FakeClock()
    host.step(seconds)
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    jumped = False
    for check in range(1, 6 * CHECKS + 1):
        host.sleep(CHECK_SECONDS)
        true_ns = host.wall_ns() - round(seconds * 1e9)
        delay_ns = (1 + check // 6 % 2 * 7) * 10**9
        offsets = [true_ns - delay_ns - clock.wall_ns()] * 3 if check % 6 == 0 else []
        assert not jumped
        jumped = clock.check(offsets, known=True, spread_ns=10 * 10**9)
    assert jumped
    assert abs(clock.wall_ns() - (host.wall_ns() - round(seconds * 1e9))) < 10 * 10**9


def test_two_nodes_do_not_set_a_clock_that_none_steps_with() -> None:
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    assert not checked(host, clock, HOURS, 100, count=2)
    assert not is_confirmed(clock)
    host.sleep(UNCONFIRMED_NS / 1e9)
    assert is_confirmed(clock)


@pytest.mark.parametrize("heard_before", [0, 3])
def test_doubt_ends_when_no_node_is_heard_for_long(heard_before: int) -> None:
    """A step is not quite established, and then all nodes are silent: what waits for the clock goes on."""
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    checked(host, clock, 0.0, heard_before)
    before = clock.wall_ns() - host.monotonic_ns()
    assert not checked(host, clock, -HOURS, CHECKS - 1)
    assert not is_confirmed(clock)
    for _ in range(round(UNCONFIRMED_NS / 1e9 / CHECK_SECONDS)):
        assert not is_confirmed(clock)
        host.sleep(CHECK_SECONDS)
        assert not clock.check([], known=True)
    assert is_confirmed(clock)
    assert clock.wall_ns() - host.monotonic_ns() == before


def test_a_minority_of_nodes_moves_nothing() -> None:
    host, rng = FakeClock(), random.Random(1)
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    for _ in range(100):
        host.sleep(CHECK_SECONDS)
        hostile = [rng.randrange(-(10**18), 10**18) for _ in range(4)]
        assert not clock.check([*hostile, *right(host, clock, host.wall_ns())], known=True)
    assert clock.difference_ns == 0


def test_delayed_messages_are_no_wrong_clock() -> None:
    """A backlog of an hour that shrinks: the nodes seem to be behind, but less and less."""
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    for delay in range(3600, 0, -20):
        host.sleep(CHECK_SECONDS)
        assert not clock.check([-delay * 10**9] * 5, known=True)
    checked(host, clock, 0.0, 1)
    assert clock.confirmed
    assert clock.difference_ns == 0


@pytest.mark.parametrize("rate", [0.6, 0.8, 1.0, 1.2, 1.4, 2.0])
@pytest.mark.parametrize("host_wrong", [0.0, HOURS])
def test_once_it_is_confirmed_delay_does_not_move_the_clock(rate: float, host_wrong: float) -> None:
    """A queue of an hour is read at `rate` times real time, in the order of its messages, or grows."""
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    checked(host, clock, host_wrong, 2 * CHECKS)
    assert clock.confirmed
    host_ahead = clock.difference_ns
    delay = 3600.0 if rate > 1 else 0.0
    for _ in range(720):
        host.sleep(CHECK_SECONDS)
        delay = max(delay + (1 - rate) * CHECK_SECONDS, 0.0)
        assert not clock.check([-round(delay * 1e9)] * 5, known=True)
    assert abs(clock.difference_ns - host_ahead) < 1e9
    checked(host, clock, host_wrong, 2)
    assert clock.confirmed


def test_delay_that_changes_at_the_start_is_no_wrong_clock() -> None:
    """It is compared with the first of the checks, or each might differ by STABLE_NS from the one before."""
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    for at in range(300):
        host.sleep(CHECK_SECONDS)
        assert not clock.check([-round((3600 - 1.5 * at) * 1e9)] * 5, known=True)


def test_small_differences_are_slewed() -> None:
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    host.step(0.5)
    times = []
    for _ in range(200):
        host.sleep(CHECK_SECONDS)
        clock.check(right(host, clock, host.wall_ns()), known=True)
        times.append(clock.wall_ns())
    steps = {after - before for before, after in pairwise(times)}
    assert steps == {5_005_000_000, 5_000_000_000}
    assert (clock.difference_ns, clock.steps) == (0, 0)


def test_without_nodes_the_host_is_followed_and_with_silent_ones_it_is_not() -> None:
    host = FakeClock()
    clock = WindowClock(host.wall_ns, host.monotonic_ns)
    host.step(HOURS)
    assert not any(clock.check([], known=True) for _ in range(10))
    assert not is_confirmed(clock)
    assert [clock.check([], known=False) for _ in range(CHECKS)][-1]
    assert clock.difference_ns == 0
    clock.check([], known=False)
    assert clock.confirmed
