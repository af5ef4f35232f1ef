"""More messages than the aggregator takes: memory is bounded, all are counted, live ones come first."""

from bench.overload import CALM, Overload
from laggard_aggregator.settings.aggregator import BrokerSettings


def test_an_overload_is_bounded_and_counted_and_over_when_it_ends() -> None:
    overload = Overload(2000, BrokerSettings(queue_messages=1000), share=0.02)
    overload.meet()
    over = overload.run(3, every=1)
    left = len(overload.queue)
    assert over.sent == 3 * 2000
    assert over.admitted < over.sent
    assert over.dropped > 0
    assert over.sent == over.admitted + over.dropped + left
    assert over.most_queued <= 2 * 1000
    assert over.most_bytes <= over.most_queued * 2000
    assert over.deferred_first == 0
    overload._share = 1.0
    after = overload.run(5, every=CALM)
    assert after.dropped == 0
    assert after.admitted == after.sent + left
    assert after.deferred_first == 0
    assert not len(overload.queue)
