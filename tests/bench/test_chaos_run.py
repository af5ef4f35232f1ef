"""A few faults of `bench.chaos`, once each: nothing lost, nothing twice, the alarm as before."""

from pathlib import Path

import pytest

from bench.chaos import host
from bench.chaos.faults import FAULTS
from bench.chaos.feed import Feed
from bench.chaos.runner import Runner
from tests.support.wait import LONG_TEST_LIMIT_SECONDS

SPEED = 20
"""The shortest interval that an agent takes, so that the alarm stands soon."""


@pytest.mark.e2e
@pytest.mark.root
@pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS)
@pytest.mark.skipif(host.problem() is not None, reason=f"{host.problem()}")
def test_nothing_is_lost_whoever_is_killed(tmp_path: Path) -> None:
    """Agents and aggregator in the middle of a write, then a restart of the broker."""
    feed = Feed(tmp_path / "feed", SPEED)
    with feed.running():
        runner = Runner(tmp_path, feed, seed=1)
        runner.run([FAULTS["tails-torn"], FAULTS["broker-restarted"]], tries=1, sites=1)
    assert runner.problems == []
    assert [(r.attempt.problem, r.lost, r.twice) for r in runner.results] == [("", 0, 0)] * 2
    assert all(result.came > 100 for result in runner.results)
