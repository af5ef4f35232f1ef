"""When a lack of acknowledgements is reported, and when it is none."""

from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.transport.unanswered import LIMIT_SECONDS, Unanswered


def test_a_lack_is_reported_once_until_it_ends() -> None:
    unanswered = Unanswered(by_aggregator=True)
    unanswered.published(0.0)
    assert not unanswered.is_due(LIMIT_SECONDS - 1)
    assert unanswered.is_due(LIMIT_SECONDS)
    unanswered.published(LIMIT_SECONDS + 10)
    assert not unanswered.is_due(LIMIT_SECONDS + 20)
    assert unanswered.seconds(LIMIT_SECONDS + 20) == LIMIT_SECONDS + 20
    assert unanswered.acknowledged()
    assert not unanswered.acknowledged()
    assert not unanswered.is_due(10 * LIMIT_SECONDS)
    assert unanswered.seconds(10 * LIMIT_SECONDS) == 0.0


def test_nothing_is_expected_without_a_session_or_from_the_broker_alone() -> None:
    unanswered = Unanswered(by_aggregator=True)
    unanswered.published(0.0)
    unanswered.disconnected()
    assert not unanswered.is_due(LIMIT_SECONDS)
    by_broker = Unanswered(by_aggregator=False)
    by_broker.published(0.0)
    assert not by_broker.is_due(LIMIT_SECONDS)


def test_the_packet_on_its_way_is_known() -> None:
    unanswered = Unanswered(by_aggregator=True)
    unanswered.sending(9000)
    unanswered.sending(300)
    unanswered.sent(9000)
    unanswered.sent(300)
    assert unanswered.lost_bytes() == 0
    unanswered.sending(500)
    unanswered.sending(200)
    assert (unanswered.lost_bytes(), unanswered.lost_bytes(), unanswered.largest_bytes) == (500, 0, 9000)


@given(st.lists(st.tuples(st.sampled_from(["publish", "ack"]), st.floats(0.1, 30.0)), max_size=60))
def test_an_aggregator_that_acknowledges_within_the_limit_is_never_reported(
    steps: list[tuple[str, float]],
) -> None:
    unanswered, now, waits_since = Unanswered(by_aggregator=True), 0.0, None
    for what, seconds in steps:
        now += seconds
        is_late = waits_since is not None and now - waits_since > LIMIT_SECONDS - 30.1
        if what == "publish" and not is_late:
            unanswered.published(now)
            waits_since = now if waits_since is None else waits_since
        else:
            unanswered.acknowledged()
            waits_since = None
        assert not unanswered.is_due(now)
