from laggard_aggregator.metrics.tcp import TCP, TCP_DESTINATION
from tests.aggregator.metrics.derived import derive


def test_acknowledgements_are_no_segments_that_could_be_sent_again() -> None:
    """1,000 full segments among 11,000 packets, behind headers of 66 bytes."""
    sent = 1_000 * 1_448 + 11_000 * 66
    rises = {"tx_bytes": sent, "tx_packets": 11_000, "RetransSegs": 50}
    assert derive(TCP, rises) == {"retransmits:events": 50.0, "retransmits:trials": 1_000.0}


def test_what_was_sent_again_was_sent() -> None:
    assert derive(TCP, {"RetransSegs": 7})["retransmits:trials"] == 7.0
    assert derive(TCP, {"tx_bytes": 60, "tx_packets": 1})["retransmits:trials"] == 0.0


def test_by_destination_the_kernel_tells() -> None:
    assert derive(TCP_DESTINATION, {"total_retrans": 3, "data_segs_out": 90}) == {
        "retransmits:events": 3.0,
        "retransmits:trials": 90.0,
    }
