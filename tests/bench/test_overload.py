"""More messages than the aggregator takes: memory is bounded, all are counted, live ones come first."""

import pytest

from bench.overload import CALM, Overload
from laggard_aggregator.settings.aggregator import BrokerSettings


@pytest.mark.parametrize("in_flight", [0, 300])
def test_an_overload_is_bounded_and_counted_and_over_when_it_ends(in_flight: int) -> None:
    overload = Overload(1000, BrokerSettings(queue_messages=1000), share=0.02, in_flight=in_flight)
    overload.meet()
    over = overload.run(4, every=1)
    waiting = len(overload.queue) + len(overload.broker)
    assert over.sent == 4 * 1000
    assert over.admitted < over.sent
    assert over.sent == over.admitted + over.dropped + waiting
    assert over.most_queued <= (in_flight + 100 if in_flight else 2 * 1000)
    assert over.most_bytes <= over.most_queued * 2000
    overload._share = 1.0
    catching_up, after = overload.run(5, every=CALM), overload.run(2, every=CALM)
    phases = (over, catching_up, after)
    assert sum(each.sent - each.admitted - each.dropped for each in phases) == 0
    assert not overload.broker
    assert not len(overload.queue)
    assert after.dropped == 0
    assert not any(each.deferred_first for each in phases)
    if in_flight:
        assert not any(each.dropped for each in phases), "the broker has them"
