import random

import pytest

from laggard_agent.transport.pacing import Backoff


def failed(times: int) -> tuple[Backoff, list[float]]:
    """After so many failures in a row, and how long the pauses after each were."""
    reconnecting = Backoff(random.Random(1))
    return reconnecting, [reconnecting.pause_seconds() for _ in range(times)]


def test_every_pause_is_about_twice_the_last_and_none_longer_than_a_minute() -> None:
    _, pauses = failed(20)
    assert all(2**at / 2 <= pauses[at] <= 2**at for at in range(6))
    assert all(30 <= pause <= 60 for pause in pauses[6:])
    assert len(set(pauses)) == 20


@pytest.mark.parametrize(
    ("failures", "lasted_seconds", "good", "seconds"),
    [(6, 60.0, False, 1), (6, 3.0, True, 4), (1, 3.0, True, 2), (6, 3.0, False, 60)],
)
def test_a_connection_that_was_good_for_something_is_soon_tried_again(
    failures: int, lasted_seconds: float, good: bool, seconds: float
) -> None:
    reconnecting, _ = failed(failures)
    reconnecting.ended(lasted_seconds, good=good)
    assert seconds / 2 <= reconnecting.pause_seconds() <= seconds
