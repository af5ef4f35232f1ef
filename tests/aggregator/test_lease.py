from collections import deque

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.lease import NAME_BYTES, Lease
from laggard_common.errors import WireError

SECONDS = 10.0
TICK = 0.5


class Contenders:
    """Leases on one topic, whose broker gives every message to each in one order, each with its own delay."""

    def __init__(self, number: int) -> None:
        self.now = 100.0
        self.alive = [True] * number
        self.delays = [0.0] * number
        self.leases = [self._new(index) for index in range(number)]
        self._to: list[deque[tuple[float, bytes]]] = [deque() for _ in range(number)]

    def _new(self, index: int) -> Lease:
        return Lease(SECONDS, bytes([index + 1]) * NAME_BYTES, lambda: self.now)

    def run(self, seconds: float) -> list[list[bool]]:
        """Who holds the lease, tick by tick; never two."""
        history = []
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            for lease, alive in zip(self.leases, self.alive, strict=True):
                message = lease.next_message(connected=True) if alive else None
                if message is not None:
                    for box in self._to:
                        box.append((self.now, message))
            for index, (lease, box) in enumerate(zip(self.leases, self._to, strict=True)):
                while box and box[0][0] + self.delays[index] <= self.now:
                    _, payload = box.popleft()
                    if self.alive[index]:
                        lease.hear(payload)
            held = [lease.held and alive for lease, alive in zip(self.leases, self.alive, strict=True)]
            assert sum(held) <= 1
            history.append(held)
        return history


def test_one_of_two_gets_it_and_keeps_it() -> None:
    both = Contenders(2)
    assert not any(map(any, both.run(2 * SECONDS)))
    both.run(SECONDS)
    assert all(sum(held) == 1 for held in both.run(10 * SECONDS))


def test_alone_it_gets_it_too() -> None:
    alone = Contenders(1)
    alone.run(3 * SECONDS)
    assert all(map(all, alone.run(10 * SECONDS)))


def test_the_other_takes_over_within_two_and_a_half_times_the_lease() -> None:
    both = Contenders(2)
    both.run(3 * SECONDS)
    holder = 0 if both.leases[0].held else 1
    both.alive[holder] = False
    history = both.run(2.5 * SECONDS)
    assert history[-1][1 - holder]
    both.alive[holder] = True  # it was only stopped, and finds that it is not its turn any more
    assert all(held == history[-1] for held in both.run(5 * SECONDS))


def test_who_hears_late_what_it_said_holds_nothing() -> None:
    alone = Contenders(1)
    alone.run(3 * SECONDS)
    alone.delays[0] = SECONDS + 1
    assert not any(map(any, alone.run(5 * SECONDS)[-10:]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_there_are_never_two_whatever_is_delayed_stopped_or_cut_off(data: st.DataObject) -> None:
    number = data.draw(st.integers(2, 3))
    some = Contenders(number)
    for _ in range(data.draw(st.integers(1, 8))):
        index = data.draw(st.integers(0, number - 1))
        some.delays[index] = data.draw(st.sampled_from([0.0, 0.5, 3.0, 9.0, 14.0, 40.0]))
        some.alive[data.draw(st.integers(0, number - 1))] = data.draw(st.booleans())
        some.run(data.draw(st.sampled_from([0.5, 2.5, 7.0, 13.0, 30.0])))
    some.alive, some.delays = [True] * number, [0.0] * number
    some.run(6 * SECONDS)
    assert all(sum(held) == 1 for held in some.run(SECONDS))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb(7),
        msgpack.packb((2, 1, bytes(NAME_BYTES), 1)),
        msgpack.packb((1, 0, bytes(NAME_BYTES), 1)),
        msgpack.packb((1, 2**63, bytes(NAME_BYTES), 1)),
        msgpack.packb((1, 1, bytes(NAME_BYTES - 1), 1)),
        msgpack.packb((1, 1, "x" * NAME_BYTES, 1)),
        msgpack.packb((1, 1, bytes(NAME_BYTES), None)),
        msgpack.packb((1, 1, bytes(NAME_BYTES))),
    ],
)
def test_what_is_no_claim_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        Lease(SECONDS, bytes(NAME_BYTES), lambda: 0.0).hear(payload)
