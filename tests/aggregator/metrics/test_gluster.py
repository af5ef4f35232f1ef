from laggard_aggregator.metrics.registry import SOURCES
from tests.aggregator.metrics.derived import derive


def test_bricks_and_volumes_answer_in_the_latencies_of_their_fops() -> None:
    for source in ("gluster_brick", "gluster_client"):
        found = derive(
            SOURCES[source],
            {
                "fop_read_count": 30,
                "fop_read_latency_ns": 60_000_000,
                "fop_write_count": 10,
                "fop_write_latency_ns": 70_000_000,
                "fop_lookup_count": 60,
                "fop_lookup_latency_ns": 6_000_000,
                "bytes_read": 30 * 65_536,
                "bytes_written": 10 * 65_536,
            },
            seconds=4.0,
        )
        assert found == {
            "read_latency": 2_000.0,
            "write_latency": 7_000.0,
            "fop_latency": 1_360.0,  # 136 ms over 100 calls
            "load.operations": 40.0,
            "load.throughput": 655_360.0,
            "load.request_bytes": 65_536.0,
            "load.read_share": 0.75,
        }


def test_locks_are_not_the_bricks_work() -> None:
    needs = SOURCES["gluster_brick"].metrics["fop_latency"].needs
    assert not [name for name in needs if "lk" in name]
