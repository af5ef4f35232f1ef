from laggard_aggregator.metrics.tcp import TCP
from tests.aggregator.metrics.derived import derive


def test_the_share_of_segments_that_were_sent_again() -> None:
    assert derive(TCP, {"RetransSegs": 50, "OutSegs": 1_000}, seconds=10.0) == {
        "retrans": 5.0,
        "retrans_plus_one": 6.0,
        "load.operations": 1_000.0,
    }


def test_without_retransmits_a_node_is_still_comparable() -> None:
    found = derive(TCP, {"OutSegs": 1_000})
    assert (found["retrans"], found["retrans_plus_one"]) == (0.0, 1.0)
