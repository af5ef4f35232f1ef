"""The collector over trees of several versions: what is found, and what happens when it changes."""

import logging
import shutil
from pathlib import Path

import pytest

from laggard_agent.collectors.lustre.param_paths import ParamDump, Trees
from laggard_agent.collectors.lustre.table_specs import SLOW, SLOWER
from laggard_common.wire.schema import FieldKind
from tests.support.builders.lustre import FIXTURES, Watched, copied, trees


def test_an_oss_of_2_10() -> None:
    watched = Watched(trees(FIXTURES / "oss-2.10"), job_stats=True).sample()
    assert watched.error == ""
    assert watched.collector.leftovers == {}
    assert watched.ids("lustre_ost") == ["scratch-OST0000", "scratch-OST0001"]
    labels = (("scope", "site"), ("fs", "scratch"), ("target", "OST0000"))
    assert watched.readings["lustre_ost"].components[0].labels == labels
    row = watched.row("lustre_ost", "scratch-OST0000")
    assert (row["read_bytes_samples"], row["read_bytes_sum"]) == (1200, 1200 * 1048576)
    assert row["statfs_samples"] == 35359 + 124430  # Lustre prints two of them
    assert "create_sum" not in row
    assert watched.row("lustre_brw", "scratch-OST0000")["disk_io_size_read_1048576"] == 1180
    assert watched.row("lustre_oss_service", "ost_io")["ost_write_sum"] == 13836421716
    assert watched.row("lustre_oss_service", "ost")["ost_write_sum"] == 0
    assert watched.row("lustre_oss_service", "ost")["threads_started"] == 17
    jobs = [f"scratch-OST000{ost}:{job}" for ost in (0, 1) for job in ("24", "kworker/86:1.0", "")]
    assert watched.ids("lustre_job_ost") == jobs
    assert watched.row("lustre_job_ost", jobs[1])["write_bytes_sum"] == 26 * 16777216
    assert watched.node("healthy") == 1


def test_an_oss_and_mds_of_2_15() -> None:
    watched = Watched(trees(FIXTURES / "server-2.15"), job_stats=True).sample()
    assert (watched.error, watched.collector.leftovers) == ("", {})
    row = watched.row("lustre_ost", "scratch-OST0001")
    assert (row["read_samples"], row["read_sum"], row["start_time"]) == (1705491, 2 * 3265635927, 1704411148)
    fields = {field.name: field for field in watched.readings["lustre_ost"].fields}
    assert fields["read_sum"].unit == "us"
    assert fields["start_time"].kind is FieldKind.GAUGE
    assert watched.row("lustre_brw", "scratch-OST0001")["pages_per_bulk_r_w_read_2"] == 21
    assert watched.row("lustre_mds_service", "mdt_out")["req_waittime_samples"] == 0
    assert watched.row("lustre_mdt", "scratch-MDT0000")["open_sum"] == 2469800
    assert watched.ids("lustre_job_ost")[1] == "scratch-OST0000:my job:7"
    assert watched.node("healthy") == 0


def test_every_line_counts_that_follows_a_header_without_start_time(tmp_path: Path) -> None:
    """From 2.16 on `start_time` may be off, and units end as those of the header do."""
    root = copied("server-2.15", tmp_path)
    path = root / "proc/fs/lustre/mdt/scratch-MDT0000/md_stats"
    head = "snapshot_time                      1790276932.808885887 secs.nsecs\n"
    lines = [f"{name:35} 5 samples [usecs] 1 4 10 30\n" for name in ("open", "close", "mknod", "unlink")]
    path.write_text(head + "".join(lines))
    watched = Watched(trees(root)).sample()
    for at, name in enumerate(("open", "close", "mknod", "unlink")):
        lines[at] = lines[at].replace(" 5 samples", " 9 samples")
        path.write_text(head.replace("932.8", "933.8") + "".join(lines))
        assert watched.sample().row("lustre_mdt", "scratch-MDT0000")[f"{name}_samples"] == 9


def test_a_client_of_2_16_with_two_mounts_of_one_file_system() -> None:
    watched = Watched(trees(FIXTURES / "client-2.16")).sample()
    assert (watched.error, watched.collector.leftovers) == ("", {})
    assert watched.ids("lustre_llite") == ["home", "scratch", "scratch-ffff8b5260000800"]
    assert watched.ids("lustre_osc")[2:4] == ["scratch-OST0000-osc", "scratch-OST0000-osc-ffff8b5260000800"]
    row = watched.row("lustre_osc", "home-OST0001-osc")
    assert row["req_waittime_samples"] == 97
    assert (row["import_state"], row["import_inflight"], row["import_services"]) == (11, 1, 5)
    assert (row["cur_dirty_bytes"], row["cur_grant_bytes"]) == (27815936, 8437760)
    rpc = watched.row("lustre_osc_rpc", "home-OST0001-osc")
    assert (rpc["read_rpcs_in_flight"], rpc["rpc_latency_us_read_2048"]) == (1, 3)
    assert watched.row("lustre_mdc_rpc", "home-MDT0000-mdc")["rpcs_in_flight_modify_1"] == 1079


def test_a_saved_dump() -> None:
    watched = Watched(ParamDump(FIXTURES / "client-2.17.lctl"), job_stats=True).sample()
    assert (watched.error, watched.collector.leftovers) == ("", {})
    assert watched.row("lustre_ost", "scratch-OST0007")["create_samples"] == 4
    assert watched.row("lustre_osc_rpc", "scratch-OST0000-osc")["write_rpcs_in_flight"] == 3
    assert watched.node("healthy") == 1


def test_nothing_found_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(trees(tmp_path))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            watched.sample(11)
            assert (watched.error, list(watched.readings), watched.node("devices")) == ("", ["lustre"], 0)
    assert len(caplog.records) == 1
    assert "nothing found under" in caplog.text
    shutil.copytree(FIXTURES / "oss-2.10/proc", tmp_path / "proc")
    assert watched.sample(11).node("devices") == 4
    shutil.rmtree(tmp_path / "proc")
    with caplog.at_level(logging.WARNING):
        watched.sample(11)
    assert len(caplog.records) == 2


def test_rows_and_components_stay_the_same_objects_while_nothing_moves(tmp_path: Path) -> None:
    root = copied("server-2.15", tmp_path)
    watched = Watched(trees(root), job_stats=True).sample()
    before = watched.readings
    path = root / "proc/fs/lustre/obdfilter/scratch-OST0001/stats"
    path.write_text(path.read_text().replace("read                      1705491", "read 1705492"))
    for source, reading in watched.sample().readings.items():
        assert reading.components is before[source].components
        assert reading.fields is before[source].fields
        for component, row, old in zip(reading.components, reading.rows, before[source].rows, strict=True):
            moved = source == "lustre_ost" and component.id == "scratch-OST0001"
            assert (row is old) == (not moved and source != "lustre"), (source, component.id)
    assert watched.row("lustre_ost", "scratch-OST0001")["read_samples"] == 1705492


def test_only_the_times_of_a_file_change(tmp_path: Path) -> None:
    root = copied("server-2.15", tmp_path)
    watched = Watched(trees(root)).sample()
    before = watched.readings["lustre_ost"].rows[0]
    path = root / "proc/fs/lustre/obdfilter/scratch-OST0000/stats"
    text = path.read_text()
    path.write_text(text.replace("1704924081.852375764", "1704924082.852375764").replace("512933", "512934"))
    assert watched.sample().readings["lustre_ost"].rows[0] is before
    path.write_text(text.replace("1704411148.063790068", "1704924000.063790068"))
    assert watched.sample().row("lustre_ost", "scratch-OST0000")["start_time"] == 1704924000


def test_a_new_counter_is_a_new_column_at_the_end(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    watched = Watched(trees(root)).sample()
    before = watched.readings["lustre_ost"].fields
    path = root / "proc/fs/lustre/obdfilter/scratch-OST0001/stats"
    path.write_text(path.read_text() + "punch                     57 samples [reqs]\n")
    fields = watched.sample().readings["lustre_ost"].fields
    assert fields[: len(before)] == before
    assert [field.name for field in fields[len(before) :]] == ["punch_samples"]
    assert watched.row("lustre_ost", "scratch-OST0001")["punch_samples"] == 57
    assert watched.row("lustre_ost", "scratch-OST0000")["punch_samples"] == 0


def test_counters_that_were_cleared_are_zero_again(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    watched = Watched(trees(root)).sample()
    path = root / "proc/fs/lustre/obdfilter/scratch-OST0000/stats"
    path.write_text("snapshot_time             1571000100.123456789 secs.nsecs\n")
    row = watched.sample().row("lustre_ost", "scratch-OST0000")
    assert set(row.values()) == {0}


def test_a_unit_that_is_not_that_of_its_peers_is_not_believed(tmp_path: Path) -> None:
    root = copied("server-2.15", tmp_path)
    path = root / "proc/fs/lustre/obdfilter/scratch-OST0001/stats"
    path.write_text(
        path.read_text().replace("statfs                    406158 samples [usecs]", "statfs 4 samples [sec]")
    )
    watched = Watched(trees(root)).sample()
    assert watched.row("lustre_ost", "scratch-OST0001")["statfs_sum"] is None
    assert watched.row("lustre_ost", "scratch-OST0000")["statfs_sum"] == 1098349
    assert watched.collector.leftovers == {str(path): (b"(statfs_sum: in s, was in us)",)}
    assert watched.node("lines_not_understood") == 1


def test_a_line_that_is_not_understood_leaves_the_others_be(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    path = root / "proc/fs/lustre/obdfilter/scratch-OST0000/stats"
    path.write_text(path.read_text().replace("create                    2 samples [reqs]", "create two"))
    watched = Watched(trees(root)).sample()
    row = watched.row("lustre_ost", "scratch-OST0000")
    assert row["read_bytes_samples"] == 1200
    assert row["create_samples"] is None  # not zero: what it says is not known
    assert watched.collector.leftovers == {str(path): (b"create two",)}


def test_an_ost_that_leaves_and_comes_back(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    watched = Watched(trees(root)).sample()
    folder = root / "proc/fs/lustre/obdfilter/scratch-OST0000"
    folder.rename(tmp_path / "away")
    watched.sample(0.1)  # too soon to look for devices again
    assert watched.ids("lustre_ost") == ["scratch-OST0001"]
    assert (watched.error, watched.node("files_gone")) == ("", 1)
    assert watched.sample().node("files_gone") == 0
    assert watched.ids("lustre_brw") == ["scratch-OST0001"]
    (tmp_path / "away").rename(folder)
    assert watched.sample(11).ids("lustre_ost") == ["scratch-OST0000", "scratch-OST0001"]


def test_a_mount_keeps_its_identity_over_remounts_and_beside_others(tmp_path: Path) -> None:
    root = copied("client-2.16", tmp_path)
    llite = root / "sys/kernel/debug/lustre/llite"
    second = llite / "scratch-ffff8b5260000800"
    second.rename(tmp_path / "second")
    watched = Watched(trees(root)).sample()
    assert watched.ids("lustre_llite") == ["home", "scratch"]
    (tmp_path / "second").rename(llite / "scratch-ffff000000000000")  # sorts before the first
    assert watched.sample(11).ids("lustre_llite") == ["home", "scratch-ffff000000000000", "scratch"]
    shutil.rmtree(llite / "scratch-ffff000000000000")
    (llite / "scratch-ffff8b524be17800").rename(llite / "scratch-ffff999999999999")
    assert watched.sample(11).ids("lustre_llite") == ["home", "scratch"]


def test_long_files_are_read_in_turns(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    watched = Watched(trees(root), job_stats=True).sample()
    for path in root.glob("proc/fs/lustre/obdfilter/*/brw_stats"):
        path.write_text(path.read_text().replace("16:", "").replace("120  10", "121  10"))
    for path in root.glob("proc/fs/lustre/obdfilter/*/job_stats"):
        path.write_text(path.read_text().replace("samples:          25", "samples:          35"))
    histograms, jobs = [], []
    for _ in range(SLOWER):
        watched.sample()
        histograms.append(
            [watched.row("lustre_brw", f"scratch-OST000{n}")["disk_ios_in_flight_read_2"] for n in (0, 1)]
        )
        jobs.append(
            [watched.row("lustre_job_ost", f"scratch-OST000{n}:24")["write_bytes_samples"] for n in (0, 1)]
        )
    for seen, old, new, turns in ((histograms, 120, 121, SLOW), (jobs, 25, 35, SLOWER)):
        assert seen[turns - 1] == [new, new]
        assert ([old, new] in seen) != ([new, old] in seen)  # not both at once


def test_jobs_expire_and_start_again(tmp_path: Path) -> None:
    root = copied("oss-2.10", tmp_path)
    path = root / "proc/fs/lustre/obdfilter/scratch-OST0000/job_stats"
    text = path.read_text()
    watched = Watched(trees(root), job_stats=True).sample()
    before = watched.ids("lustre_job_ost")
    path.write_text("job_stats:\n")
    for _ in range(SLOWER):
        watched.sample()
    assert watched.ids("lustre_job_ost") == before[3:]
    path.write_text(text.replace("samples:          25", "samples:           1"))
    for _ in range(SLOWER):
        watched.sample()
    assert watched.ids("lustre_job_ost") == before
    assert watched.row("lustre_job_ost", before[0])["write_bytes_samples"] == 1


def test_jobs_past_the_limit_are_counted() -> None:
    watched = Watched(trees(FIXTURES / "oss-2.10"), job_stats=True, max_job_entries=4).sample()
    assert len(watched.ids("lustre_job_ost")) == 4
    assert watched.node("job_entries_left_out") == 2


def test_debugfs_that_is_not_mounted_is_an_error_beside_what_was_read() -> None:
    root = FIXTURES / "client-2.16"
    watched = Watched(Trees(root / "proc", root / "sys", None)).sample()
    assert "osc has 6 devices but none has stats (is debugfs mounted?)" in watched.error
    assert watched.row("lustre_osc", "home-OST0001-osc")["import_state"] == 11


def test_an_mds_has_connections_to_its_osts_that_are_not_a_clients(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/lustre/osc/scratch-OST0000-osc-MDT0000").mkdir(parents=True)
    (tmp_path / "sys/fs/lustre/osc/scratch-OST0000-osc-MDT0000/active").write_text("1\n")
    assert Watched(trees(tmp_path)).sample().error == ""
