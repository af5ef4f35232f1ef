"""More messages than the aggregator takes: memory is bounded, all are counted, live ones come first."""

from bench.overload import CALM, Overload
from laggard_aggregator.settings.aggregator import BrokerSettings


def test_an_overload_is_bounded_and_counted_and_over_when_it_ends() -> None:
    overload = Overload(2000, BrokerSettings(queue_messages=1000), share=0.02)
    overload.meet()
    over = overload.run(3, every=1)
    assert over.sent == 3 * 2000
    assert over.dropped > 0
    assert over.sent == over.admitted + over.dropped + len(overload.queue)
    assert over.most_queued <= 2 * 1000
    assert over.most_bytes <= over.most_queued * 2000
    overload._share = 1.0
    catching_up, after = overload.run(5, every=CALM), overload.run(2, every=CALM)
    phases = (over, catching_up, after)
    assert sum(each.sent - each.admitted - each.dropped for each in phases) == len(overload.queue) == 0
    assert after.dropped == 0
    assert not any(each.deferred_first for each in phases)
