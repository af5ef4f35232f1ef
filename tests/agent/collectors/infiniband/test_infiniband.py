"""Ports of RDMA devices, as the kernel and its drivers show them, and as they never do."""

import logging
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_agent.cli import main
from laggard_agent.collectors.infiniband.collector import parse_counter, parse_rate, parse_state
from laggard_common.wire.schema import FieldKind
from tests.support.builders.infiniband import NODES, Node

PORT = "mlx5_0/ports/1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0\n", 0),
        (b"18446744073709551615\n", 2**64 - 1),
        (b"18446744073709551616\n", None),
        (b"7", 7),
        (b"", None),
        (b"\n", None),
        (b"-1\n", None),
        (b"1.5\n", None),
        (b"0x10\n", None),
        (b"1 2\n", None),
        (b"N/A (no PMA)\n", None),
        ("\u0663\n".encode(), None),
        (b"9" * 4096, None),
    ],
)
def test_counters(text: bytes, value: int | None) -> None:
    assert parse_counter(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"200 Gb/sec (4X HDR)\n", 200_000_000_000),
        (b"2.5 Gb/sec (1X SDR)\n", 2_500_000_000),
        (b"2.5 Gb/sec (1X)\n", 2_500_000_000),
        (b"200 Mb/sec (4X HDR)\n", None),
        (b"Gb/sec\n", None),
        (b"", None),
        (b"9999999999 Gb/sec\n", None),
    ],
)
def test_rates(text: bytes, value: int | None) -> None:
    assert parse_rate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"4: ACTIVE\n", 4), (b"5: LinkUp\n", 5), (b"8: <unknown>\n", 8), (b"ACTIVE\n", None), (b": x", None)],
)
def test_states(text: bytes, value: int | None) -> None:
    assert parse_state(text) == value


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    for parse in (parse_counter, parse_state, parse_rate):
        value = parse(data)
        assert value is None or 0 <= value < 2**64


@pytest.mark.parametrize("name", NODES)
def test_nothing_is_left_over(name: str, tmp_path: Path) -> None:
    node = Node(tmp_path, name).sample()
    assert node.node("values_not_understood") == 0
    assert node.node("files_failed") == 0
    assert node.node("ports") == len(node.names())


def test_infiniband_and_roce(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5").sample()
    assert node.names() == ["mlx5_0/1", "mlx5_1/1", "bnxt_re0/1"]
    port = node.row("mlx5_0/1")
    assert (port["state"], port["phys_state"], port["rate"]) == (4, 5, 200_000_000_000)
    assert (port["port_xmit_data"], port["port_rcv_data"]) == (2938475610293847, 918273645546372)
    assert (port["port_xmit_wait"], port["symbol_error"], port["link_downed"]) == (73645, 3, 1)
    assert (port["hw_out_of_sequence"], port["hw_local_ack_timeout_err"]) == (7, 4)
    assert port["counters_saturated"] == 0
    assert "hw_lifespan" not in port
    fields = {field.name: field for field in node.sampled.readings["infiniband_port"].fields}
    assert {name for name, field in fields.items() if field.unit == "words"} == {
        "port_xmit_data",
        "port_rcv_data",
    }
    gauges = {name for name, field in fields.items() if field.kind is FieldKind.GAUGE}
    assert gauges - {"state", "phys_state", "rate", "counters_saturated"} == {
        "hw_active_qps",
        "hw_watermark_qps",
    }
    assert (node.row("bnxt_re0/1")["state"], node.row("bnxt_re0/1")["hw_active_qps"]) == (1, 12)
    assert node.row("bnxt_re0/1")["hw_out_of_sequence"] is None


def test_identity_is_the_guid_of_the_device(tmp_path: Path) -> None:
    components = Node(tmp_path, "mlx5").sample().sampled.readings["infiniband_port"].components
    assert [c.id for c in components] == ["0c42a10300102030/1", "0c42a10300102031/1", "bnxt_re0/1"]
    assert components[1].labels == (("device", "mlx5_1"), ("port", "1"), ("link_layer", "Ethernet"))


def test_two_devices_with_one_guid_stay_two(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5").write("mlx5_1/node_guid", "0c42:a103:0010:2030\n").sample()
    ids = node.sampled.ids("infiniband_port")
    assert ids == ["0c42a10300102030/1@mlx5_0", "0c42a10300102030/1@mlx5_1", "bnxt_re0/1"]


def test_of_two_devices_with_one_guid_the_one_that_stays_keeps_its_own_id(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5").sample()
    node.write("mlx5_1/node_guid", "0c42:a103:0010:2030\n").sample(10)
    assert node.sampled.ids("infiniband_port") == [
        *("0c42a10300102030/1", "0c42a10300102030/1@mlx5_1"),
        "bnxt_re0/1",
    ]
    shutil.rmtree(node.folder / "mlx5_0")
    node.sample(10)
    assert node.sampled.ids("infiniband_port") == ["0c42a10300102030/1@mlx5_1", "bnxt_re0/1"]


def test_a_saturated_counter_is_absent_and_counted(tmp_path: Path) -> None:
    """It does not move any more, which is not the same as nothing happening."""
    node = Node(tmp_path, "mlx5").sample()
    port = node.row("mlx5_1/1")
    assert port["counters_saturated"] == 4
    saturated = ("port_xmit_wait", "port_xmit_discards", "link_downed", "excessive_buffer_overrun_errors")
    assert [port[name] for name in saturated] == [None] * 4
    node.write("mlx5_1/ports/1/counters/link_downed", "0\n").sample()
    assert (node.row("mlx5_1/1")["link_downed"], node.row("mlx5_1/1")["counters_saturated"]) == (0, 3)


def test_data_counters_of_32_bits(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx4").sample()
    port = node.row("mlx4_0/1")
    assert (port["port_xmit_data"], port["port_rcv_data"], port["symbol_error"]) == (None, None, None)
    assert (port["port_xmit_packets"], port["counters_saturated"]) == (4100000001, 3)
    assert node.row("mlx4_0/2")["port_xmit_data"] == 0


def test_no_pma_is_absent_and_understood(tmp_path: Path) -> None:
    port = Node(tmp_path, "mlx4").sample().row("i40iw0/1")
    assert port["port_xmit_data"] is None
    assert (port["counters_saturated"], port["hw_ip4InOctets"]) == (0, 5566)


def test_omni_path(tmp_path: Path) -> None:
    port = Node(tmp_path, "hfi1").sample().row("hfi1_0/1")
    assert (port["hw_SwLinkUp"], port["hw_RcResend"], port["rate"]) == (1, 207, 100_000_000_000)


def test_without_the_drivers_counters(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5", hw_counters=False).sample()
    assert [name for name in node.row("mlx5_0/1") if name.startswith("hw_")] == []
    assert node.row("mlx5_0/1")["port_xmit_wait"] == 73645


def test_what_did_not_change_is_the_same_object(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5").sample()
    before = node.sampled.readings
    node.write(f"{PORT}/counters/symbol_error", "4\n").sample(30)
    for source, reading in node.sampled.readings.items():
        assert reading.components is before[source].components
        assert reading.fields is before[source].fields
    rows = zip(node.sampled.readings["infiniband_port"].rows, before["infiniband_port"].rows, strict=True)
    assert [new is old for new, old in rows] == [False, True, True]


def test_nothing_found_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert node.sample(20).node("ports") == 0
    assert [record.message for record in caplog.records] == [
        f"collector infiniband: nothing found under {tmp_path}/class/infiniband"
    ]
    node.write("rxe0/ports/1/state", "4: ACTIVE\n").sample(20)
    assert node.names() == ["rxe0/1"]


def test_a_device_that_goes_and_comes_back(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5").sample()
    shutil.move(node.folder / "mlx5_0", tmp_path / "away")
    assert node.sample().names() == ["mlx5_1/1", "bnxt_re0/1"]
    shutil.move(tmp_path / "away", node.folder / "mlx5_0")
    assert node.sample(20).names() == ["mlx5_0/1", "mlx5_1/1", "bnxt_re0/1"]


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5").sample()
    (node.folder / PORT / "counters/port_xmit_data").unlink()
    node.sample()
    assert node.row("mlx5_0/1")["port_xmit_data"] is None
    assert node.row("mlx5_0/1")["port_rcv_data"] == 918273645546372


def test_a_file_that_cannot_be_read_fails_and_the_rest_goes_on(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5")
    path = node.folder / PORT / "counters/port_xmit_data"
    path.unlink()
    path.mkdir()
    assert node.sampled.sample().error == f"{path}: Is a directory"
    assert node.row("mlx5_0/1")["port_xmit_data"] is None
    assert node.row("mlx5_0/1")["port_rcv_data"] == 918273645546372
    assert (node.node("files_failed"), node.node("ports")) == (1, 3)


@pytest.mark.parametrize(
    "text",
    [b"", b"\0" * 100, b"-5\n", b"1e9\n", b"99999999999999999999999\n", b"\xff\xfe", b"0x1F\n", b"12 34\n"],
)
def test_a_bad_value_is_absent_and_counted(tmp_path: Path, text: bytes) -> None:
    node = Node(tmp_path, "mlx5").write(f"{PORT}/counters/port_xmit_data", text).sample()
    assert node.node("values_not_understood") == 1
    assert node.row("mlx5_0/1")["port_xmit_data"] is None
    assert node.row("mlx5_0/1")["port_rcv_data"] == 918273645546372


def test_a_monstrous_file(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5").write(f"{PORT}/counters/port_xmit_data", b"1" * 10_000_000)
    assert node.sampled.sample().error.endswith("port_xmit_data: longer than 4096 bytes")
    assert node.row("mlx5_0/1")["port_rcv_data"] == 918273645546372


def test_truncated_values_are_shorter_numbers_or_absent(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5")
    for text in ("200 Gb/sec (4X HDR)\n", "4: ACTIVE\n"):
        for end in range(len(text)):
            node.write(f"{PORT}/rate", text[:end]).write(f"{PORT}/state", text[:end]).sample()
            assert node.row("mlx5_0/1")["state"] in (None, 4)
            assert node.row("mlx5_0/1")["rate"] in (None, 200_000_000_000)


def test_names_that_no_kernel_makes_are_passed_over(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5")
    node.write("bad name/ports/1/state", "4: ACTIVE\n").write(f"{PORT}/counters/a\nb", "1\n")
    node.write(f"{PORT}/counters/{'x' * 100}", "1\n").write("a_file", "")
    node.sample()
    assert node.names() == ["mlx5_0/1", "mlx5_1/1", "bnxt_re0/1"]
    assert all(len(name) < 70 and name.isprintable() for name in node.row("mlx5_0/1"))


def test_more_counters_than_a_source_may_have(tmp_path: Path) -> None:
    node = Node(tmp_path, "mlx5")
    for number in range(1100):
        node.write(f"{PORT}/hw_counters/x{number}", "1\n")
    assert len(node.sample().sampled.readings["infiniband_port"].fields) == 1024
    assert node.node("counters_left_out") == 4 + 21 + 29 + 7 + 1100 - 1024
    assert node.row("mlx5_0/1")["port_xmit_data"] == 2938475610293847


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, and the same from a dump; /proc alone has no such devices."""
    Node(tmp_path / "sys", "mlx5")
    options = ["--collectors", "infiniband"]
    assert main(["--once", *options, "--sysfs", str(tmp_path / "sys")]) == 0
    before = [line.partition('"component"')[2] for line in capsys.readouterr().out.splitlines()]
    assert len(before) == 4
    assert main(["--dump", str(tmp_path / "out"), *options, "--sysfs", str(tmp_path / "sys")]) == 0
    capsys.readouterr()
    assert main(["--once", *options, "--sysfs", str(tmp_path / "out/sys")]) == 0
    assert [line.partition('"component"')[2] for line in capsys.readouterr().out.splitlines()] == before
    assert main(["--once", *options, "--procfs", str(tmp_path)]) == 0
    assert '"ports": 0' in capsys.readouterr().out
