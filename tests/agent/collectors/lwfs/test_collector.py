"""The collector over logs, whole ones and hostile ones."""

import logging
import os
from pathlib import Path

import pytest

from laggard_agent.collectors.lwfs.trace import FIELDS, MOST_SERVERS
from laggard_common.wire.schema import FieldKind
from tests.support.builders.lwfs import FIXTURES, Log, meta, queue


def test_a_released_log_with_two_servers(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append((FIXTURES / "released.log").read_text()).sample()
    assert log.sampled.ids("lwfs") == ["192.0.2.7", "192.0.2.8"]
    labels = (("scope", "site"), ("server", "192.0.2.7"))
    assert log.sampled.readings["lwfs"].components[0].labels == labels
    row = log.row("192.0.2.7")
    assert [row[f"read_exe_{bucket}"] for bucket in range(8)] == [0, 5900, 14800, 86, 7, 0, 0, 0]
    assert [row[f"write_wait_{bucket}"] for bucket in range(8)] == [128, 3700, 1000, 5, 5, 9, 6, 4]
    assert (row["queue_samples"], row["queue_length_sum"]) == (2, 8)
    assert row["last_trace_time_ms"] == 1_519_552_808_116
    assert (log.count("lines_late"), log.count("lines_not_understood"), log.count("traces")) == (1, 0, 12)
    other = log.row("192.0.2.8")
    assert (other["meta_exe_0"], other["read_exe_0"], other["queue_samples"]) == (724, None, 0)


def test_the_log_of_the_server_itself(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append((FIXTURES / "server.log").read_text()).sample()
    assert log.sampled.ids("lwfs") == ["lwfs"]
    assert log.sampled.readings["lwfs"].components[0].labels == ()
    assert (log.row()["meta_exe_0"], log.row()["meta_wait_7"]) == (1772, 22)
    assert log.queue() == (2, 16)
    assert log.row()["last_trace_time_ms"] is None
    assert (log.count("servers"), log.count("found"), log.count("behind_bytes")) == (1, 1, 0)


def test_fields() -> None:
    kinds = {field.name: field.kind for field in FIELDS}
    assert len(kinds) == 51
    assert kinds["read_wait_7"] is FieldKind.HISTOGRAM
    assert (kinds["queue_length_sum"], kinds["last_trace_time_ms"]) == (FieldKind.COUNTER, FieldKind.GAUGE)


def test_what_was_there_before_the_agent_counts_only_as_buckets(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", queue(100) + meta(5)).sample()
    assert (log.row()["meta_exe_0"], log.queue()) == (5, (0, 0))
    log.append(queue(3)).sample()
    assert log.queue() == (1, 3)


def test_no_line_is_idle(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", meta(5)).sample()
    before = log.sampled.readings["lwfs"]
    for _ in range(3):
        log.sample(1000)
        assert log.sampled.readings["lwfs"].rows[0] is before.rows[0]
        assert log.sampled.readings["lwfs"].components is before.components


def test_a_server_that_was_restarted(tmp_path: Path) -> None:
    released = (FIXTURES / "released.log").read_text().splitlines()
    log = Log(tmp_path / "log", released[2] + "\n").sample()
    later = released[2].replace("5900 14000", "3 4").replace("10:00:04", "10:05:00")
    assert log.append(later + "\n").sample().row("192.0.2.7")["read_exe_1"] == 3
    set_back = later.replace("3 4", "5 6").replace("10:05:00", "09:00:00")
    assert log.append(set_back + "\n").sample().row("192.0.2.7")["read_exe_1"] == 5
    assert log.count("lines_late") == 0


def test_nothing_found_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log(tmp_path / "log", None)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            log.sample()
            assert (list(log.sampled.readings), log.count("found")) == (["lwfs_log"], 0)
    assert [record.getMessage() for record in caplog.records] == [
        f"collector lwfs: nothing found: no log {log.path}"
    ]
    log.append(queue(4)).sample()
    assert (log.queue(), log.count("found")) == ((1, 4), 1)  # begun after the agent: counts from its start


@pytest.mark.parametrize("text", [b"\0\xff" * 3000 + b"\n", b"\n" * 5000, b"no trace\n" * 100])
def test_a_log_of_something_else(tmp_path: Path, text: bytes) -> None:
    log = Log(tmp_path / "log").append(text).sample()
    assert (log.sampled.ids("lwfs"), log.count("lines_not_understood")) == ([], 0)


def test_lines_that_are_not_understood_leave_the_others_be(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    bad = queue(-3) + queue(2**32) + meta(2**64) + "[Trace]\n"
    log.append(queue(1) + bad + queue(2) + meta(9)).sample()
    assert (log.queue(), log.row()["meta_exe_0"], log.count("lines_not_understood")) == ((2, 3), 9, 4)


def test_more_servers_than_there_can_be(tmp_path: Path) -> None:
    log = Log(tmp_path / "log").sample()
    log.append("".join(f"s{n} {queue(1)}" for n in range(MOST_SERVERS + 10))).sample()
    assert (log.count("servers"), log.count("lines_not_understood")) == (MOST_SERVERS, 10)


def test_a_pipe_or_a_folder_in_the_place_of_the_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        log = Log(path, None)
        assert log.sampled.sample().error == f"{path}: not a regular file"
        assert list(log.sampled.readings) == ["lwfs_log"]


def test_permission_denied_and_given(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", meta(5) + queue(8))
    log.path.chmod(0)
    if os.access(log.path, os.R_OK):
        pytest.skip("this user may read everything")
    assert log.sampled.sample().error == f"{log.path}: Permission denied"
    log.path.chmod(0o600)
    assert log.sample().row()["meta_exe_0"] == 5
    assert log.queue() == (0, 0)
