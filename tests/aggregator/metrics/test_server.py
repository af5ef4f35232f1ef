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
    assert derived(0, 0, rx_bytes=3_000)["rx_per_moved"] == pytest.approx(2.046, abs=0.001)


@pytest.mark.parametrize("packet_bytes", [1448, 65_536])
def test_a_server_with_three_times_a_small_load_is_like_its_peers(packet_bytes: int) -> None:
    """Of some 100 kB/s each, one with a hot file: it was 1.15 times as high where the floor divided only."""
    little, more = (
        derived(size, 0, rx_bytes=3_000, tx_bytes=size, tx_packets=size // packet_bytes)
        for size in (100_000, 400_000)
    )
    for name in ("tx_per_moved", "tx_packets_per_moved"):
        assert more[name] == pytest.approx(little[name], rel=0.12)
