"""Two aggregators of the same nodes: the one that acts is killed, the other takes its place."""

import json
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.beside import beside
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.demo.recording import read_recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.site import SHIFT_SAMPLES, free_port, make_site
from laggard_common.clock import SystemClock
from tests.e2e.mail_server import mail_server
from tests.e2e.processes import end, get_json, running, until
from tests.e2e.test_mosquitto import AGGREGATOR, MOSQUITTO, SPEED, program, python
from tests.e2e.test_restart import MAIL, says, straggler

STANDBY = "[standby]\nlease_seconds = 1.0\n"


@pytest.mark.e2e
@pytest.mark.timeout(150)
def test_the_other_aggregator_takes_over_and_nothing_is_lost_or_told_anew(tmp_path: Path) -> None:
    mosquitto = program("mosquitto", "mosquitto")
    recording = read_recording()
    site = make_site(tmp_path / "site", recording.luns, 1 / SPEED)
    site.write()
    mail_port = free_port()
    (tmp_path / "mosquitto.conf").write_text(MOSQUITTO.format(port=site.ports.mqtt))
    ports = {"one": site.ports.http, "two": free_port()}
    for name, http in ports.items():
        configured = AGGREGATOR.format(
            mqtt=site.ports.mqtt,
            http=http,
            interval=1 / SPEED,
            archive=json.dumps(str(tmp_path / name / "archive")),
            state=json.dumps(str(tmp_path / name / "state")),
        )
        configured = configured.replace("[mqtt]\n", f'[mqtt]\nclient_id = "{name}"\n')
        (tmp_path / f"{name}.toml").write_text(configured + MAIL.format(port=mail_port) + STANDBY)
    apis = {name: f"http://127.0.0.1:{http}" for name, http in ports.items()}
    replay = Replay(recording, site.roots(), SPEED, SystemClock(), align_ticks=SHIFT_SAMPLES)
    replay.prepare()

    def holders() -> list[str]:
        return [name for name, api in apis.items() if says(api, "laggard_lease_held 1.0")]

    with ExitStack() as stack:
        mails = stack.enter_context(mail_server(mail_port))
        stack.enter_context(
            running([mosquitto, "-c", str(tmp_path / "mosquitto.conf")], tmp_path / "mosquitto.log")
        )
        both = {
            name: stack.enter_context(
                running(
                    python("laggard_aggregator.cli.daemon", "--config", str(tmp_path / f"{name}.toml")),
                    tmp_path / f"{name}.log",
                )
            )
            for name in ports
        }
        for api in apis.values():
            until("both to be ready", lambda api=api: get_json(f"{api}/readyz"), 30)  # type: ignore[misc]
        (holder,) = until("one to hold the lease", holders, 20)
        (other,) = set(ports) - {holder}
        for node in site.nodes.values():
            procfs = ("--procfs", str(site.procfs(node)))
            agent = python("laggard_agent", "--config", str(site.agent_toml(node)), *procfs)
            stack.enter_context(running(agent, site.log(node)))
        stack.enter_context(beside(replay.run))
        until("the alarm on both", lambda: all(straggler(api) for api in apis.values()), 80)
        until("the mail to be sent", lambda: says(apis[holder], 'laggard_mails_total{result="sent"} 1.0'), 30)
        both[holder].send_signal(signal.SIGKILL)
        both[holder].wait()
        until("the other to hold the lease", lambda: holders() == [other], 20)
        before = straggler(apis[other])
        until("it to go on", lambda: straggler(apis[other])["window_end"] > before["window_end"], 40)
        assert end(both[other]) == 0

    # What was told in the five minutes before may not have been sent: it is told again under its Message-ID.
    assert len({mail["Message-ID"] for mail in mails}) == 1
    assert len(mails) <= 2
    said = (tmp_path / f"{other}.log").read_text()
    assert said.count(" is a straggler of ") == 1
    assert " is no straggler any more" not in said
    reader = ArchiveReader(tmp_path / other / "archive")
    taken = Counter((batch.schema.node, batch.stream, batch.seq) for _, batch in reader.batches())
    assert set(taken.values()) == {1}
    for node in site.nodes.values():
        seqs = sorted(seq for name, _, seq in taken if name == node)
        assert seqs == list(range(len(seqs))), f"{node} lost some"
