import pytest

from laggard_aggregator.metrics.server import SERVER
from tests.aggregator.metrics.derived import derive


def test_traffic_for_each_byte_that_disks_moved() -> None:
    """10 s; 2,000 sectors of 512 bytes a second, and 64 KiB a second on top."""
    moved = 2_000 * 512 + 65_536
    found = derive(
        SERVER,
        {
            "rx_bytes": 30 * moved,
            "tx_bytes": 5 * moved,
            "tx_packets": 10_895_360,
            "rd_sectors": 12_000,
            "wr_sectors": 7_000,
            "dc_sectors": 1_000,
        },
        seconds=10.0,
    )
    assert found == {"rx_per_moved": 3.0, "tx_per_moved": 0.5, "tx_packets_per_moved": 1.0}


def test_the_chatter_of_an_idle_server_is_little() -> None:
    assert derive(SERVER, {"rx_bytes": 3_000})["rx_per_moved"] == pytest.approx(0.046, abs=0.001)
