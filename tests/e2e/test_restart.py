"""kill -9 in the middle of an episode, on real processes: nothing is forgotten, lost, or told twice."""

import asyncio
import json
import random
import signal
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.demo.recording import Recording, read_recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.site import SHIFT_SAMPLES, Site, make_site
from laggard_aggregator.ingest.ingest_queue import IngestQueue
from laggard_aggregator.ingest.mqtt.subscriber import Subscriber
from laggard_aggregator.offline.archive_replay import ArchiveReplay
from laggard_aggregator.settings.aggregator import BrokerSettings
from laggard_common.clock import SystemClock
from laggard_common.mqtt.settings import client_arguments
from tests.e2e.test_mosquitto import AGGREGATOR, MOSQUITTO, SPEED, program, python
from tests.support.http_receiver import Receiver
from tests.support.loop_thread import beside
from tests.support.ports import free_port, is_listening
from tests.support.processes import end, get_json, get_text, running
from tests.support.smtp import mail_server
from tests.support.wait import LIMIT_SECONDS, async_wait_until, time_limit, wait_until

MAIL = """\
[mail]
server = "127.0.0.1"
port = {port}
sender = "laggard@example.org"
recipients = ["storage@example.org"]
after_seconds = 0
learning_seconds = 0
gather_seconds = 0
"""
WEBHOOK = """\
[webhook]
url = "http://127.0.0.1:{port}/"
after_seconds = 0
learning_seconds = 0
gather_seconds = 0
"""


def write(tmp_path: Path, site: Site, mail: int, webhook: int) -> None:
    (tmp_path / "mosquitto.conf").write_text(MOSQUITTO.format(port=site.mqtt_port))
    (tmp_path / "aggregator.toml").write_text(
        AGGREGATOR.format(
            mqtt=site.mqtt_port,
            http=site.http_port,
            interval=1 / SPEED,
            archive=json.dumps(str(tmp_path / "archive")),
            state=json.dumps(str(tmp_path / "state")),
        )
        + "catch_up_seconds = 2.0\nsnapshot_seconds = 5.0\n"
        + MAIL.format(port=mail)
        + WEBHOOK.format(port=webhook)
    )


def straggler(api: str) -> Any:
    """The one alarm that stands, if it is one."""
    answer = get_json(f"{api}/api/v1/stragglers")
    standing = [one for one in answer["stragglers"] if one["raised_at"]] if answer else []
    return standing[0] if len(standing) == 1 else None


def without_recovery(recording: Recording) -> Recording:
    """With the LUN slow to the end: a replay repeats what follows `fault_end`, here the slow part.

    A test may then take as long as its machine needs; the episode is not over meanwhile.
    """
    slow = tuple(sample for sample in recording.samples if sample.time < recording.fault_end)
    return replace(recording, samples=slow, fault_end=recording.fault_start)


def says(api: str, sample: str) -> bool:
    """Whether that line stands in what Prometheus would scrape."""
    return sample in get_text(f"{api}/metrics").splitlines()


@pytest.mark.e2e
def test_an_aggregator_that_is_killed_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    mosquitto = program("mosquitto", "mosquitto")
    recording = without_recovery(read_recording())
    site = make_site(tmp_path / "site", recording.luns, 1 / SPEED, free_port(), free_port())
    site.write()
    mail_port, receiver = free_port(), Receiver(port=free_port())
    write(tmp_path, site, mail_port, receiver.port)
    replay = Replay(recording, site.roots(), SPEED, SystemClock(), align_ticks=SHIFT_SAMPLES)
    replay.prepare()
    api = f"http://127.0.0.1:{site.http_port}"
    command = python("laggard_aggregator.cli.daemon", "--config", str(tmp_path / "aggregator.toml"))
    log = tmp_path / "aggregator.log"

    with ExitStack() as stack:
        mail_box = stack.enter_context(mail_server(mail_port))
        stack.enter_context(beside(receiver.run))
        stack.enter_context(
            running([mosquitto, "-c", str(tmp_path / "mosquitto.conf")], tmp_path / "mosquitto.log")
        )
        first = stack.enter_context(running(command, log))
        wait_until(lambda: get_json(f"{api}/readyz"), "the aggregator to be ready")
        for node in site.nodes.values():
            procfs = ("--procfs", str(site.procfs(node)))
            agent = python("laggard_agent", "--config", str(site.agent_toml(node)), *procfs)
            stack.enter_context(running(agent, site.log(node)))
        stack.enter_context(beside(replay.run))
        before = wait_until(lambda: straggler(api), "an alarm")
        wait_until(lambda: says(api, 'laggard_mails_total{result="sent"} 1.0'), "the mail to be sent")
        posted = 'laggard_notifications_total{channel="webhook",result="sent"} 1.0'
        wait_until(lambda: says(api, posted), "the notification to be posted")
        first.send_signal(signal.SIGKILL)
        first.wait()
        second = stack.enter_context(running(command, log))
        wait_until(lambda: get_json(f"{api}/readyz"), "it to be ready again")
        after = straggler(api)
        assert (after["name"], after["since"]) == (site.component(recording.faulty), before["since"])
        assert after["raised_at"] == before["raised_at"]
        wait_until(lambda: straggler(api)["window_end"] > before["window_end"], "the episode to go on")
        assert end(second) == 0

    (arrived,) = mail_box.mails
    mail = arrived.message
    assert mail["Subject"].startswith(f"[Laggard demo] {site.component(recording.faulty)} has been ")
    assert "image/png" in [part.get_content_type() for part in mail.walk()]
    (request,) = receiver.requests
    assert request.json["incidents"][0]["name"] == site.component(recording.faulty)
    said = log.read_text()
    assert said.count("alarm raised: ") == 1
    assert "alarm cleared: " not in said
    reader = ArchiveReader(tmp_path / "archive")
    taken = Counter((batch.schema.node, batch.stream, batch.seq) for _, batch in reader.batches())
    assert set(taken.values()) == {1}
    for node in site.nodes.values():
        seqs = sorted(seq for name, _, seq in taken if name == node)
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), f"{node} lost some"
    transitions = [t for judged in ArchiveReplay(reader).judgements() for t in judged.transitions]
    assert [(t.kind, t.alarm.since) for t in transitions] == [("raised", before["since"])]


@pytest.mark.e2e
def test_the_broker_keeps_what_was_not_done_when_it_was_cut_off(tmp_path: Path) -> None:
    """A real broker's persistent session, and the same client id over two lives of the subscriber."""
    mosquitto, port = program("mosquitto", "mosquitto"), free_port()
    (tmp_path / "mosquitto.conf").write_text(MOSQUITTO.format(port=port))
    topic = "laggard/1/site/storage/oss-1/status"
    settings = BrokerSettings(port=port)

    async def life(done: int, published: list[bytes]) -> list[bytes]:
        inbox = IngestQueue(100)
        subscriber = Subscriber(
            settings,
            "site",
            partial(client_arguments, settings),
            queue=inbox,
            clock=SystemClock(),
            rng=random.Random(1),
            hold_back=True,
        )
        task = asyncio.create_task(subscriber.run())
        came: list[bytes] = []
        async with time_limit():
            await async_wait_until(lambda: subscriber.connected)
            async with aiomqtt.Client("127.0.0.1", port, timeout=LIMIT_SECONDS) as agent:
                for payload in published:
                    await agent.publish(topic, payload, qos=1)
            while published[-1] not in came:
                await inbox.wait()
                came += [payload for _, payload, _ in inbox.take_live()]
        subscriber.done(done)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return came

    with running([mosquitto, "-c", str(tmp_path / "mosquitto.conf")], tmp_path / "mosquitto.log"):
        wait_until(lambda: is_listening(port), "mosquitto to listen")
        assert asyncio.run(life(2, [b"1", b"2", b"3", b"4"])) == [b"1", b"2", b"3", b"4"]
        assert asyncio.run(life(3, [b"5"])) == [b"3", b"4", b"5"]
