"""The collector over a folder of dumps that are rewritten, torn, and left behind."""

import logging
import os
import re
from pathlib import Path

import pytest

from laggard_agent.collectors.gluster.collector import MOST_DUMP_BYTES
from laggard_common.wire.schema import FieldKind
from tests.support.builders.gluster import BRICK, CLIENT, PATH, Folder, brick, client


def test_a_brick_and_a_client(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK, CLIENT)
    sampled = folder.sampled.sample()
    assert sampled.error == ""
    (component,) = sampled.readings["gluster_brick"].components
    assert (component.id, component.name, component.labels) == (PATH, PATH, (("volume", "rep"),))
    assert folder.brick()["fop_write_count"] == 134
    assert folder.brick()["fop_write_latency_ns"] == round(134 * 273171.03)
    assert folder.brick()["fop_read_count"] == 0
    assert "fop_rmdir_count" not in folder.brick()  # never called here
    assert "fop_upcall_latency_ns" not in folder.brick()
    assert folder.brick()["write_64kb"] == 67
    assert folder.brick()["start_time"] == 1_763_000_000 - 95
    assert folder.brick()["sample_interval_ms"] == 1000
    fields = {field.name: field for field in sampled.readings["gluster_brick"].fields}
    assert (fields["write_64kb"].kind, fields["fop_write_count"].kind) == (
        FieldKind.HISTOGRAM,
        FieldKind.COUNTER,
    )
    assert (fields["fop_write_latency_ns"].unit, fields["bytes_read"].unit) == ("ns", "bytes")
    (mount,) = sampled.readings["gluster_client"].components
    assert (mount.id, mount.labels) == ("rep", (("volume", "rep"),))
    assert sampled.row("gluster_client", "rep")["fop_lookup_count"] == 211
    assert (folder.node("bricks"), folder.node("clients"), folder.node("lines_not_understood")) == (1, 1, 0)


def test_a_dump_is_taken_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    first = folder.sampled.sample().readings["gluster_brick"]
    again = folder.sampled.sample().readings["gluster_brick"]
    assert (again.rows[0], again.components, again.fields) == (first.rows[0], first.components, first.fields)
    assert again.rows[0] is first.rows[0]
    assert again.components is first.components
    assert again.fields is first.fields
    folder.write(brick(1), seconds=1.0).sampled.sample()
    assert folder.brick()["fop_write_count"] == 166


@pytest.mark.parametrize("torn", ["", brick(1)[:20_000], brick(1)[:-3], brick(1)[: len(brick(1)) // 2]])
def test_half_a_dump_is_left_for_the_next_sample(tmp_path: Path, torn: str) -> None:
    folder = Folder(tmp_path, BRICK)
    before = folder.sampled.sample().readings["gluster_brick"].rows[0]
    folder.write(torn, seconds=1.0).sampled.sample()
    assert (folder.sampled.error, folder.node("dumps_partial")) == ("", 1)
    assert folder.sampled.readings["gluster_brick"].rows[0] is before
    folder.write(brick(1), seconds=1.0).sampled.sample()
    assert (folder.node("dumps_partial"), folder.brick()["fop_write_count"]) == (0, 166)


def test_no_column_goes_and_new_ones_come_at_the_end(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    before = folder.sampled.sample().readings["gluster_brick"].fields
    text = brick(1).replace('aggr.fop.rmdir.count": 0', 'aggr.fop.rmdir.count": 2')
    folder.write(text, seconds=1.0).sampled.sample()
    fields = folder.sampled.readings["gluster_brick"].fields
    assert fields[: len(before)] == before
    assert [field.name for field in fields[len(before) :]] == ["fop_rmdir_count"]
    folder.write(brick(2), seconds=2.0).sampled.sample()
    assert folder.sampled.readings["gluster_brick"].fields is fields


def test_the_interval_changes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    folder.sampled.sample()
    # Five seconds in one interval, with 30 calls of 2 ms in each.
    text = brick(1).replace('sample_interval_sec": 1.00', 'sample_interval_sec": 5.00')
    for key, value in (
        ("aggr.uptime", "100"),
        ("aggr.fop.write.count", str(134 + 150)),
        ("inter.fop.write.per_sec", "30.00"),
        ("inter.fop.write.latency_ave_usec", "2000000.00"),
    ):
        text, times = re.subn(rf'({key}": )[0-9.]+', rf"\g<1>{value}", text)
        assert times == 1
    before = folder.brick()["fop_write_latency_ns"]
    folder.write(text, seconds=5.0).sampled.sample()
    assert folder.brick()["sample_interval_ms"] == 5000
    assert (folder.brick()["fop_write_latency_ns"] or 0) - (before or 0) == 150 * 2_000_000


def test_a_brick_that_was_restarted_begins_anew(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    folder.write(brick(3), seconds=3.0).sampled.sample()
    text = brick(0).replace('aggr.uptime": 95', 'aggr.uptime": 1')
    folder.write(text, seconds=20.0).sampled.sample()
    assert folder.brick()["start_time"] == 1_763_000_019
    assert folder.brick()["fop_write_latency_ns"] == round(134 * 273171.03)


def test_a_dump_that_is_slow_to_reach_its_file_is_not_of_another_process(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    folder.sampled.sample()
    before = folder.brick()["start_time"]
    folder.write(brick(1), seconds=31.0).sampled.sample(30)
    assert folder.brick()["start_time"] == before
    folder.write(brick(2), seconds=500.0).sampled.sample(30)
    assert folder.brick()["start_time"] == (before or 0) + 498


def test_latency_measurement_that_is_off(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    folder.write(re.sub(r'(latency_[a-z_]*usec"): ?[0-9.]+', r"\1: 0.00", brick())).sampled.sample()
    assert folder.sampled.error == ""
    assert (folder.brick()["fop_write_count"], folder.brick()["fop_write_latency_ns"]) == (134, None)
    assert folder.node("lines_not_understood") == 0


def test_a_counter_that_only_another_brick_has_is_zero(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    text = brick().replace("_srv_gl_b_1_rep", "_srv_gl_b-2_rep")
    text = re.sub(r'(aggr\.fop\.create\.[a-z_]*"): ?[0-9.]+', r"\1: 0", text)
    folder.write(text, "glusterfsd__srv_gl_b-2_rep.dump").sampled.sample()
    row = folder.sampled.row("gluster_brick", "/srv/gl/b-2/rep")
    assert (row["fop_create_count"], row["fop_create_latency_ns"]) == (0, 0)
    assert folder.brick()["fop_create_count"] == 18


def test_two_mounts_of_a_volume_write_over_each_other(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CLIENT)
    folder.sampled.sample()
    other = client().replace('uptime": 7', 'uptime": 3').replace('lookup.count": 211', 'lookup.count": 9')
    for second in range(1, 8):
        folder.write(other, CLIENT, seconds=second + 0.5).sampled.sample()
        assert folder.sampled.row("gluster_client", "rep")["fop_lookup_count"] == 211
    assert folder.node("dumps_of_others") == 7
    for second in range(8, 20):  # the first one was unmounted
        folder.write(other.replace('uptime": 3', f'uptime": {second - 4}'), CLIENT, second).sampled.sample()
    assert folder.sampled.row("gluster_client", "rep")["fop_lookup_count"] == 9


def test_a_process_that_ended_leaves_its_dump_behind(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK, CLIENT)
    folder.sampled.sample()
    folder.write(brick(1), seconds=50.0).sampled.sample(50)
    folder.sampled.sample(20)
    assert (folder.sampled.ids("gluster_brick"), folder.sampled.ids("gluster_client")) == ([PATH], [])
    assert (folder.node("dumps_stale"), folder.sampled.error) == (1, "")
    folder.sampled.sample(50)
    assert list(folder.sampled.readings) == ["gluster"]
    folder.write(brick(2), seconds=110.0).sampled.sample()
    assert folder.brick()["fop_write_count"] == 198


def test_an_interval_longer_than_the_patience_for_dumps(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    folder.write(brick().replace('sample_interval_sec": 1.00', 'sample_interval_sec": 300.00'))
    folder.sampled.sample()
    assert folder.sampled.sample(800).ids("gluster_brick") == [PATH]
    assert folder.sampled.sample(200).ids("gluster_brick") == []


def test_nothing_found_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            folder.sampled.sample()
            assert (folder.sampled.error, list(folder.sampled.readings)) == ("", ["gluster"])
        folder.stats.rmdir()
        folder.sampled.sample()
    assert len(caplog.records) == 1
    assert "nothing found in" in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\n=== Cumulative stats ===\n", "not the two JSON objects of io-stats; is"),
        (b"\0\xff" * 3000, "not the two JSON objects of io-stats; is"),
        (b'{\n"a": 1\n}\n{\n"b": 1\n}\n', "no gluster.<name>.aggr.<value> in the first object"),
    ],
)
def test_a_bad_file_leaves_the_others_be(tmp_path: Path, text: bytes, why: str) -> None:
    folder = Folder(tmp_path, BRICK, CLIENT)
    folder.write(text, CLIENT)
    for _ in range(2):
        folder.sampled.sample()
        assert folder.sampled.error.startswith(f"{folder.stats / CLIENT}: {why}")
        assert (folder.node("dumps_failed"), folder.sampled.ids("gluster_brick")) == (1, [PATH])


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK, CLIENT)
    with (folder.stats / CLIENT).open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    folder.sampled.sample()
    assert folder.sampled.error == f"{folder.stats / CLIENT}: longer than {MOST_DUMP_BYTES} bytes"
    assert folder.sampled.ids("gluster_brick") == [PATH]


def test_a_pipe_does_not_stall_the_collector(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    os.mkfifo(folder.stats / "glusterfs_x.dump")
    assert folder.sampled.sample().error == f"{folder.stats / 'glusterfs_x.dump'}: not a regular file"
    assert folder.sampled.ids("gluster_brick") == [PATH]


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK, CLIENT)
    folder.sampled.sample()
    (folder.stats / BRICK).unlink()
    (folder.stats / CLIENT).unlink()
    (folder.stats / CLIENT).symlink_to("nowhere")  # listed, and gone when it is opened
    folder.sampled.sample()
    assert (folder.sampled.error, folder.sampled.ids("gluster_brick")) == ("", [])
    assert folder.sampled.ids("gluster_client") == ["rep"]


@pytest.mark.parametrize("closed", [f"stats/{CLIENT}", "stats"])
def test_permission_denied(tmp_path: Path, closed: str) -> None:
    folder = Folder(tmp_path, BRICK, CLIENT)
    path = folder.root / closed
    path.chmod(0)
    try:
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
        folder.sampled.sample()
    finally:
        path.chmod(0o700)
    assert folder.sampled.error == f"{path}: Permission denied"
    assert folder.sampled.ids("gluster_brick") == ([PATH] if closed != "stats" else [])


def test_a_folder_in_the_place_of_a_dump(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    (folder.stats / "glusterfs_x.dump").mkdir()
    assert folder.sampled.sample().error == f"{folder.stats / 'glusterfs_x.dump'}: not a regular file"


def test_lines_that_are_not_understood_are_counted(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    folder.write(
        brick().replace('aggr.fop.write.count": 134', 'aggr.fop.write.count": -134')
    ).sampled.sample()
    assert folder.node("lines_not_understood") == 1
    assert folder.brick()["fop_write_count"] is None
    assert folder.brick()["fop_open_count"] == 117


def test_more_counters_than_a_table_may_have(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BRICK)
    more = "".join(f'"gluster.brick._srv_gl_b_1_rep.aggr.fop.made_{n}.count": 1,\n' for n in range(2000))
    folder.write(brick().replace("{\n", "{\n" + more, 1)).sampled.sample()
    assert len(folder.sampled.readings["gluster_brick"].fields) == 1024
