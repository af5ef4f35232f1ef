from laggard_agent.pace import UNACKNOWLEDGED, Pace
from laggard_agent.spool_segments import Stored


def message(seq: int) -> Stored:
    return Stored(bytes(16), "net", seq, 0, 60, b"")


def full(acknowledged: bool = True) -> Pace:
    """With as much under way as may be, sent at 0."""
    pace = Pace(0.6)
    pace.connected(0.0)
    for seq in range(UNACKNOWLEDGED):
        assert pace.may_send(list(pace.under_way), 0.0, acknowledged=acknowledged)
        pace.sent(message(seq), 0.0)
    return pace


def test_so_many_may_be_under_way_and_an_acknowledgement_lets_one_more_go() -> None:
    pace = full()
    assert not pace.may_send(list(pace.under_way), 5.0, acknowledged=True)
    assert pace.may_send(list(pace.under_way[1:]), 5.1, acknowledged=True)


def test_it_is_asked_again_after_a_pause_that_the_collectors_make_shorter() -> None:
    slow, quick = Pace(0.1), Pace(2.0)
    for pace in (slow, quick):
        pace.may_send([], 100.0, acknowledged=True)
    assert (slow.due, quick.due) == (100.5, 100.1)


def test_patience_doubles_while_nothing_is_acknowledged_and_begins_anew_after() -> None:
    pace, went, now = full(), [], 0.0
    while now < 2000:
        now += 1.0
        if pace.may_send(list(pace.under_way), now, acknowledged=True):
            went.append(now)
            pace.sent(message(100 + len(went)), now)
    assert went == [10.0, 30.0, 70.0, 150.0, 310.0, 630.0, 950.0, 1270.0, 1590.0, 1910.0]
    assert pace.may_send(list(pace.under_way[1:]), 2000.0, acknowledged=True)
    pace.sent(message(200), 2000.0)
    assert not pace.may_send(list(pace.under_way), 2009.0, acknowledged=True)
    assert pace.may_send(list(pace.under_way), 2010.0, acknowledged=True)


def test_where_nobody_acknowledges_the_pause_is_the_only_bound() -> None:
    pace = full(acknowledged=False)
    assert not pace.may_send(list(pace.under_way), 5.0, acknowledged=False)
    assert pace.may_send(list(pace.under_way), 30.1, acknowledged=False)
    pace.sent(message(9), 30.1)
    assert pace.may_send(list(pace.under_way), 30.5, acknowledged=False)
