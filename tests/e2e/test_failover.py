"""Fail-over: the next aggregator mounts the storage as it was when the machine was lost."""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.demo.recording import read_recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.site import SHIFT_SAMPLES, make_site
from laggard_common.clock import SystemClock
from tests.e2e.test_mosquitto import AGGREGATOR, MOSQUITTO, SPEED, program, python
from tests.e2e.test_restart import MAIL, says, straggler, without_recovery
from tests.support.loop_thread import beside
from tests.support.ports import free_port
from tests.support.processes import end, get_json, run_command, running
from tests.support.smtp import mail_server
from tests.support.wait import wait_until

STORAGE_BYTES = 128 * 1024 * 1024


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    """A file system on the loop device of `image`; skips where that is not possible."""
    at.mkdir()
    try:
        run_command(["mount", "-o", "loop", image, at])
    except AssertionError as exc:
        pytest.skip(f"no loop devices: {exc}")
    try:
        yield at
    finally:
        run_command(["umount", "-l", at], check=False)


@pytest.mark.e2e
@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="needs mkfs.ext4")
def test_the_next_machine_continues_where_the_lost_one_was(tmp_path: Path) -> None:
    mosquitto = program("mosquitto", "mosquitto")
    recording = without_recovery(read_recording())
    site = make_site(tmp_path / "site", recording.luns, 1 / SPEED, free_port(), free_port())
    site.write()
    mail_port = free_port()
    (tmp_path / "mosquitto.conf").write_text(MOSQUITTO.format(port=site.mqtt_port))
    api = f"http://127.0.0.1:{site.http_port}"
    replay = Replay(recording, site.roots(), SPEED, SystemClock(), align_ticks=SHIFT_SAMPLES)
    replay.prepare()

    def aggregator(storage: Path, http: int = site.http_port) -> list[str]:
        config = storage.with_suffix(f".{http}.toml")
        configured = AGGREGATOR.format(
            mqtt=site.mqtt_port,
            http=http,
            interval=1 / SPEED,
            archive=json.dumps(str(storage / "archive")),
            state=json.dumps(str(storage / "state")),
        )
        config.write_text(configured + "snapshot_seconds = 5.0\n" + MAIL.format(port=mail_port))
        return python("laggard_aggregator.cli.daemon", "--config", str(config))

    image, lost = tmp_path / "storage.img", tmp_path / "lost.img"
    with image.open("wb") as file:
        file.truncate(STORAGE_BYTES)
    run_command(["mkfs.ext4", "-q", image])
    log = tmp_path / "aggregator.log"
    with ExitStack() as stack:
        mail_box = stack.enter_context(mail_server(mail_port))
        stack.enter_context(
            running([mosquitto, "-c", str(tmp_path / "mosquitto.conf")], tmp_path / "mosquitto.log")
        )
        machine_1 = stack.enter_context(mounted(image, tmp_path / "machine-1"))
        first = stack.enter_context(running(aggregator(machine_1), log))
        wait_until(lambda: get_json(f"{api}/readyz"), "the aggregator to be ready")
        for node in site.nodes.values():
            procfs = ("--procfs", str(site.procfs(node)))
            agent = python("laggard_agent", "--config", str(site.agent_toml(node)), *procfs)
            stack.enter_context(running(agent, site.log(node)))
        stack.enter_context(beside(replay.run))
        before = wait_until(lambda: straggler(api), "an alarm")
        wait_until(lambda: says(api, 'laggard_mails_total{result="sent"} 1.0'), "the mail to be sent")

        refused = run_command(aggregator(machine_1, free_port()), check=False)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1].endswith("the state is in use by another aggregator")

        # The backing file has all that was flushed to the device: as shared storage when a machine dies.
        first.send_signal(signal.SIGKILL)
        first.wait()
        shutil.copyfile(image, lost)
        machine_2 = stack.enter_context(mounted(lost, tmp_path / "machine-2"))
        second = stack.enter_context(running(aggregator(machine_2), log))
        wait_until(lambda: get_json(f"{api}/readyz"), "the next aggregator to be ready")
        after = straggler(api)
        assert (after["name"], after["since"]) == (site.component(recording.faulty), before["since"])
        assert after["raised_at"] == before["raised_at"]
        wait_until(lambda: straggler(api)["window_end"] > before["window_end"], "the episode to go on")
        assert end(second) == 0
        reader = ArchiveReader(machine_2 / "archive")
        accepted = Counter((batch.schema.node, batch.stream, batch.seq) for _, batch in reader.batches())

    assert len(mail_box.mails) == 1
    assert set(accepted.values()) == {1}
    for node in site.nodes.values():
        seqs = sorted(seq for name, _, seq in accepted if name == node)
        assert seqs == list(range(len(seqs))), f"{node} lost some"
