from laggard_aggregator.metrics.registry import SOURCES
from tests.aggregator.metrics.derived import derive


def nonzero(found: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if value}


def test_an_ost_answers_in_the_rise_of_the_sum_by_the_rise_of_the_samples() -> None:
    found = derive(
        SOURCES["lustre_ost"],
        {
            "read_samples": 30,
            "read_sum": 60_000,
            "read_bytes_samples": 30,
            "read_bytes_sum": 30 * 2**20,
            "write_samples": 10,
            "write_sum": 70_000,
            "write_bytes_samples": 10,
            "write_bytes_sum": 10 * 2**20,
            "punch_samples": 2,
            "punch_sum": 900,
        },
        seconds=2.0,
    )
    assert nonzero(found) == {
        "read_latency": 2_000.0,
        "write_latency": 7_000.0,
        "punch_latency": 450.0,
        "load.operations": 40.0,
        "load.throughput": 20.0 * 2**20,
        "load.request_bytes": 2**20,
        "load.read_share": 0.75,
    }


def test_an_mdt_answers_operation_by_operation() -> None:
    found = derive(
        SOURCES["lustre_mdt"],
        {"open_samples": 8, "open_sum": 1_600, "getattr_samples": 2, "getattr_sum": 30},
    )
    assert nonzero(found) == {"open_latency": 200.0, "getattr_latency": 15.0, "load.operations": 10.0}


def test_operations_that_are_counted_without_times_have_no_latency() -> None:
    assert nonzero(derive(SOURCES["lustre_mdt"], {"open_samples": 8})) == {"load.operations": 8.0}


def test_a_client_sees_its_rpcs() -> None:
    osc = derive(
        SOURCES["lustre_osc"],
        {
            "ost_read_samples": 1,
            "ost_read_sum": 5_625,
            "read_bytes_samples": 1,
            "read_bytes_sum": 65_536,
            "req_waittime_samples": 4,
            "req_waittime_sum": 9_000,
            "req_active_samples": 4,
            "req_active_sum": 14,
        },
    )
    assert osc["rpcs_in_flight"] == 3.5
    assert osc["read_latency"] == 5_625
    assert osc["write_latency"] == 0
    assert osc["rpc_latency"] == 2_250
    assert (osc["load.operations"], osc["load.read_share"]) == (1, 1)
    mdc = derive(
        SOURCES["lustre_mdc"],
        {"mds_close_samples": 11, "mds_close_sum": 12_404, "req_waittime_samples": 2, "req_waittime_sum": 50},
    )
    assert nonzero(mdc) == {"close_latency": 12_404 / 11, "rpc_latency": 25.0, "load.operations": 2.0}


def test_a_service_says_how_long_requests_wait_and_how_many_there_are() -> None:
    for source in ("lustre_oss_service", "lustre_mds_service"):
        found = derive(
            SOURCES[source],
            {
                "req_waittime_samples": 100,
                "req_waittime_sum": 4_500,
                "req_qdepth_samples": 100,
                "req_qdepth_sum": 250,
                "req_active_samples": 100,
                "req_active_sum": 700,
            },
        )
        assert found == {
            "wait_time": 45.0,
            "queue_depth": 2.5,
            "active_requests": 7.0,
            "load.operations": 100.0,
        }
