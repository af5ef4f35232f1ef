from collections.abc import Mapping

import pytest

from laggard_aggregator.metrics.traffic import SERVER
from tests.aggregator.metrics.derived import derive

MB = 2**20
IDLE = 65_536


def derived(read: int, written: int, **net: int) -> Mapping[str, float]:
    """The metrics of a server whose disks read and wrote so many bytes in a second."""
    sectors = {"rd_sectors": read // 512, "wr_sectors": written // 1024, "dc_sectors": written // 1024}
    return derive(SERVER, sectors | net)


def test_traffic_for_each_byte_that_disks_moved_in_its_direction() -> None:
    found = derived(80 * MB, 20 * MB, rx_bytes=30 * MB, tx_bytes=90 * MB, tx_packets=70_000)
    assert found["rx_per_moved"] == pytest.approx(1 + (30 * MB + IDLE) / (22.4 * MB + IDLE))
    assert found["tx_per_moved"] == pytest.approx(1 + (90 * MB + IDLE) / (80.6 * MB + IDLE))
    packets = 70_000 + 0.5 * IDLE / 1448
    assert found["tx_packets_per_moved"] == pytest.approx(1 / 1448 + packets / (90 * MB + IDLE))


def test_readers_and_writers_are_alike_and_a_foreign_stream_is_not() -> None:
    reading = derived(80 * MB, 0, rx_bytes=2_400_000, tx_bytes=80 * MB)
    writing = derived(0, 80 * MB, rx_bytes=80 * MB, tx_bytes=2_400_000)
    hogged = derived(80 * MB, 0, rx_bytes=2_400_000, tx_bytes=112 * MB)
    for name in ("rx_per_moved", "tx_per_moved"):
        assert reading[name] == pytest.approx(writing[name], rel=0.15)
    assert hogged["tx_per_moved"] > 1.14 * reading["tx_per_moved"]


def test_the_chatter_of_an_idle_server_is_little() -> None:
    chatter = derived(0, 0, rx_bytes=3_000, tx_bytes=3_000, tx_packets=10)
    busy = derived(100 * MB, 0, rx_bytes=3 * MB, tx_bytes=103 * MB, tx_packets=70_000)
    for name in ("rx_per_moved", "tx_per_moved"):
        assert chatter[name] == pytest.approx(busy[name], rel=0.05)
    assert not chatter["tx_packets_per_moved"], "not measured"


@pytest.mark.parametrize("packet_bytes", [1448, 65_536])
def test_servers_of_any_load_are_alike_by_bytes_and_by_packets(packet_bytes: int) -> None:
    """A hot file gave a server with a small load 1.15 times the value of its peers, which is anomalous."""
    found = [
        derived(size, 0, rx_bytes=3_000, tx_bytes=size, tx_packets=max(size // packet_bytes, 1))
        for size in (1_000, 100_000, 200_000, 400_000, 10 * MB, 100 * MB)
    ]
    for name in ("tx_per_moved", "tx_packets_per_moved"):
        measured = [values[name] for values in found if values[name]]
        assert max(measured) < 1.12 * min(measured)
        assert len(measured) >= 3
