"""The whole agent against a broker on loopback: fake trees in, messages out."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import random
import shutil
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest
import zstandard

from laggard_agent.app import App
from laggard_agent.collectors.interface import Reading, Roots
from laggard_agent.sampling.batcher import EncodedBatch, splay_ns
from laggard_agent.sampling.sampler import Sampler
from laggard_agent.settings import AgentMqttSettings, AgentSettings, OutboxSettings, SpoolSettings
from laggard_agent.spool.segment_queue import RangeSet
from laggard_agent.spool.spool import Spool
from laggard_agent.transport.publisher import Publisher
from laggard_common import wire
from laggard_common.clock import SystemClock
from laggard_common.daemon.sd_notify import Notifier
from laggard_common.errors import ServiceError
from laggard_common.wire import Ack, Envelope, Kind
from laggard_common.wire.schema import Schema
from tests import naive_wire
from tests.naive_coalesce import apart
from tests.support.broker import Broker
from tests.support.builders.trees import FIELDS, components, disk_line, tree
from tests.support.filled_spool import FilledSpool, reopened
from tests.support.processes import run_command
from tests.support.service_manager import manager, told
from tests.support.wait import LIMIT_SECONDS, async_wait_until, time_limit

BASE = "laggard/1/site/storage/oss-1"


@dataclass
class Site:
    """A broker, a fake /proc, and agents that are run on them."""

    broker: Broker
    folder: Path

    def settings(self, **changes: object) -> AgentSettings:
        made = AgentSettings(
            node="oss-1",
            interval_seconds=0.05,
            batch_samples=4,
            collectors=("diskstats",),
            mqtt=AgentMqttSettings(port=self.broker.port),
            spool=SpoolSettings(directory=self.folder / "spool"),
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def disks(self, reads: int) -> None:
        values = (reads, *range(2, 18))
        path = self.folder / "proc" / "new"
        tree(self.folder / "proc", {"new": disk_line("sda", *values) + disk_line("sdb", *range(17))})
        path.rename(self.folder / "proc" / "diskstats")

    def payloads(self, source: str) -> list[bytes]:
        return [m.payload for m in self.broker.messages if m.topic == f"{BASE}/data/{source}"]

    def joined(self, source: str = "diskstats") -> list[Envelope]:
        """As they came."""
        return [wire.decode_envelope(payload) for payload in self.payloads(source)]

    def envelopes(self, source: str = "diskstats") -> list[Envelope]:
        """Batch by batch."""
        return [batch for payload in self.payloads(source) for batch in batches_in(payload)]

    def schemas(self) -> list[Schema]:
        topic = f"{BASE}/schema/diskstats"
        return [wire.decode_schema(m.payload) for m in self.broker.messages if m.topic == topic]

    def states(self) -> list[dict[str, object]]:
        found = [wire.decode_envelope(m.payload) for m in self.broker.messages if m.topic == f"{BASE}/status"]
        assert all((e.kind, e.source, e.codec) == (Kind.STATE, "agent", 0) for e in found)
        return [wire.decode_state(e.payload) for e in found]

    def acknowledge(self, *envelopes: Envelope) -> None:
        """In ranges, as an aggregator does it."""
        ranges: dict[tuple[bytes, str], RangeSet] = {}
        for e in envelopes:
            ranges.setdefault((e.stream, e.source), RangeSet()).add(e.seq, e.seq)
        acks = [Ack(stream, source, tuple(r.pieces())) for (stream, source), r in ranges.items()]
        self.broker.publish("laggard/1/site/ack/oss-1", wire.encode_ack(acks))

    async def run(
        self,
        during: Callable[[], Awaitable[None]],
        settings: AgentSettings | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        """Runs an agent while `during` does, and stops it."""
        stop = asyncio.Event()
        roots = Roots(self.folder / "proc", None)
        app = App(settings or self.settings(), roots, rng=random.Random(), notifier=notifier)
        task = asyncio.create_task(app.run(stop))
        watched = asyncio.ensure_future(during())
        await asyncio.wait((task, watched), return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        if task.done():
            watched.cancel()
            task.result()
        await asyncio.wait_for(task, LIMIT_SECONDS)
        await watched

    async def published(self, count: int) -> None:
        await self.broker.until(lambda: len(self.envelopes()) >= count)

    async def comes_again(self, seq: int, acknowledge: Callable[[], None]) -> None:
        """Lets an aggregator acknowledge after each batch until that one came twice."""
        while [e.seq for e in self.envelopes()].count(seq) < 2:
            await self.published(len(self.envelopes()) + 1)
            acknowledge()


@cache
def batches_in(payload: bytes) -> tuple[Envelope, ...]:
    """The batches of a message, decoded once: conditions look at all messages each time they are polled."""
    return tuple(apart(wire.decode_envelope(payload)))


def segment_bytes(spool: Path) -> int:
    """Size of all segments of a spool."""
    return sum(path.stat().st_size for path in spool.glob("*.segment"))


def site_test(test: Callable[[Site], Awaitable[None]], tmp_path: Path) -> None:
    async def run() -> None:
        async with Broker() as broker:
            site = Site(broker, tmp_path)
            site.disks(1)
            await test(site)

    asyncio.run(run())


def test_counters_arrive_with_status_and_schema_before_them(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.run(lambda: site.published(3))
        order = [message.topic.removeprefix(BASE + "/") for message in site.broker.messages]
        assert order[0] == "status"
        assert order.index("schema/diskstats") < order.index("data/diskstats")
        assert all(message.qos == 1 for message in site.broker.messages)
        assert site.broker.most_in_flight == 1
        schema = site.schemas()[0]
        assert (schema.node, schema.interval_ns, schema.batch_ticks) == ("oss-1", 50_000_000, 4)
        assert [component.id for component in schema.components] == ["sda", "sdb"]
        assert len(schema.fields) == 17
        data = site.envelopes()
        assert [e.seq for e in data] == list(range(len(data)))
        assert {e.stream for e in data} == {schema.stream}
        for e in data:
            values = naive_wire.decode(e)
            assert values.values == [[[1, *range(2, 18)], list(range(17))]] * e.n
            assert e.t0_ns % e.dt_ns == 0
            for i, read_ns in enumerate(values.read_ns):
                assert 0 <= read_ns - e.t0_ns - i * e.dt_ns < 10**9

    site_test(test, tmp_path)


def test_documents_of_the_outbox_are_sent_until_they_are_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    folder.mkdir()
    (folder / "1.jobs").write_bytes(b"first")

    async def test(site: Site) -> None:
        made = site.settings(outbox=OutboxSettings(folder))

        async def during() -> None:
            await site.broker.until(lambda: len(site.joined("jobs")) == 1)
            assert list(folder.iterdir()) == []
            site.acknowledge(*site.joined("jobs"))
            (folder / "2.jobs").write_bytes(b"second")
            await site.broker.until(lambda: len(site.joined("jobs")) == 2)

        await site.run(during, made)
        await site.run(lambda: site.broker.until(lambda: len(site.joined("jobs")) == 3), made)
        first, second, again = site.joined("jobs")
        assert (first.kind, first.n, first.seq) == (Kind.EVENTS, 1, 0)
        contents = [zstandard.ZstdDecompressor().decompress(each.payload) for each in (first, second)]
        assert contents == [b"first", b"second"]
        assert again == second, "the one without an acknowledgement, after the restart"

    site_test(test, tmp_path)


def test_a_document_stays_in_the_outbox_while_only_memory_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "outbox"
    folder.mkdir()
    (folder / "1.jobs").write_bytes(b"first")

    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", failing)

    async def test(site: Site) -> None:
        made = site.settings(outbox=OutboxSettings(folder))
        await site.run(lambda: site.broker.until(lambda: len(site.joined("jobs")) == 1), made)
        assert [path.name for path in folder.iterdir()] == ["1.jobs"]
        assert len(site.joined("jobs")) == 1, "not once a poll"

    site_test(test, tmp_path)


def test_ticks_follow_one_another_over_batches(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.run(lambda: site.published(5))
        times = [e.t0_ns + i * e.dt_ns for e in site.envelopes() for i in range(e.n)]
        assert times == sorted(set(times))
        assert sum(e.n for e in site.envelopes()) == len(times) > 12

    site_test(test, tmp_path)


def test_the_status_says_how_the_agent_is(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.run(lambda: site.published(2))
        first, last = site.states()[0], site.states()[-1]
        assert (first["state"], last["state"]) == ("up", "stopped")
        assert {"role": "storage", "interval_ns": 50_000_000, "batch_ticks": 4}.items() <= last.items()
        assert last["collectors"] == {
            "diskstats": {"success": True, "seconds": pytest.approx(0, abs=2), "components": 2, "error": ""}
        }
        assert last["acknowledged_by"] == "broker"
        assert (last["dropped_samples"], last["clock_steps"]) == (0, 0)
        assert all(isinstance(last[key], float) and last[key] for key in ("cpu_seconds",))
        assert isinstance(last["resident_bytes"], int)
        assert "compiled" not in last
        assert site.broker.retained[f"{BASE}/status"].payload == site.broker.messages[-1].payload

    site_test(test, tmp_path)


def test_the_status_documents_every_key(tmp_path: Path) -> None:
    document = (Path(__file__).resolve().parents[2] / "docs" / "wire-format.md").read_text()

    async def test(site: Site) -> None:
        await site.run(lambda: site.published(1))
        assert all(f"`{key}`" in document for key in site.states()[-1])

    site_test(test, tmp_path)


def test_a_lost_agent_is_down_by_its_last_will(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async def cut_off() -> None:
            await site.published(1)
            site.broker.hang_up()
            await site.broker.until(lambda: site.states()[-1]["state"] == "down")
            await site.broker.until(lambda: site.states()[-1]["state"] == "up")

        await site.run(cut_off)
        assert site.states()[-1]["state"] == "stopped"

    site_test(test, tmp_path)


def test_batches_wait_for_the_aggregator_and_then_leave(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async def acknowledge_all() -> None:
            await site.published(4)
            site.acknowledge(*site.envelopes())

        await site.run(acknowledge_all)
        assert site.states()[-1]["acknowledged_by"] == "aggregator"
        again = len(site.envelopes())
        site.broker.messages.clear()
        await site.run(lambda: site.published(3))
        seqs = [e.seq for e in site.envelopes()]
        assert again - 4 <= min(seqs)
        assert 0 not in seqs

    site_test(test, tmp_path)


def test_what_no_aggregator_took_comes_again_after_a_restart_and_in_its_stream(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        await site.run(lambda: site.published(3))
        before = site.envelopes()
        site.broker.messages.clear()
        await site.run(lambda: site.published(len(before) + 2))
        after = site.envelopes()
        assert {e.stream for e in after} == {before[0].stream}
        assert {e.seq for e in before} <= {e.seq for e in after}
        same = {e.seq: e for e in after}
        assert all(same[e.seq] == e for e in before)

    site_test(test, tmp_path)


def test_where_puback_is_enough_nothing_comes_again(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        settings = site.settings(spool=SpoolSettings(directory=site.folder / "spool", acknowledge="broker"))
        await site.run(lambda: site.published(3), settings)
        highest = max(e.seq for e in site.envelopes())
        assert site.states()[-1]["acknowledged_by"] == "broker"
        site.broker.messages.clear()
        await site.run(lambda: site.published(2), settings)
        assert min(e.seq for e in site.envelopes()) >= highest

    site_test(test, tmp_path)


def test_no_broker_at_the_start_is_one_warning_and_no_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def test(site: Site) -> None:
        await site.broker.stop()

        async def later() -> None:
            spool = site.folder / "spool"
            await async_wait_until(lambda: segment_bytes(spool) >= 1500)
            await site.broker.start()
            await site.broker.until(lambda: {0, 1, 2} <= {e.seq for e in site.envelopes()})

        await site.run(later)
        warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert warnings[0].startswith(f"no connection to the broker at 127.0.0.1:{site.broker.port}: ")
        assert any(r.message.startswith("connected to the broker at") for r in caplog.records)

    site_test(test, tmp_path)


def test_live_data_goes_before_the_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_agent.spool.backlog.MOST_TICKS", 8)

    async def test(site: Site) -> None:
        await site.run(lambda: site.published(30))
        left = reopened(site.folder / "spool", "oss-1", 4, site.settings().interval_ns)
        first = site.envelopes()[0]
        old = set(range(left.next_seq((first.stream, first.source))))  # also those that were not published
        left.close()
        site.broker.messages.clear()

        async def acknowledge_until_all_is_there() -> None:
            """From the first live batch on: until then the backlog stops after a few messages."""
            await site.broker.until(lambda: any(e.seq not in old for e in site.envelopes()))
            while not old <= {e.seq for e in site.envelopes()}:
                await site.published(len(site.envelopes()) + 1)
                site.acknowledge(*site.envelopes())

        await site.run(acknowledge_until_all_is_there)
        seqs = [e.seq for e in site.envelopes()]
        first_live = next(
            seq for seq in seqs if seq not in old
        )  # earlier ones were made before the connection
        live = [seq for seq in seqs if seq >= first_live]
        behind = [seq for seq in seqs if seq < first_live]
        assert live == sorted(live)
        assert behind == sorted(behind)
        assert seqs.index(live[0]) < len(behind)

    site_test(test, tmp_path)


def test_a_backlog_goes_out_in_messages_of_sixty_samples_and_more(tmp_path: Path) -> None:
    """The spool is as a short outage left it, with no sample missed: what is joined has no gap."""
    interval_ns = 5_000_000
    left = FilledSpool(tmp_path / "spool", "oss-1", 7, interval_ns=interval_ns)
    disk, begin_ns = components("sda"), (SystemClock().wall_ns() // 10**9 - 10) * 10**9
    for tick_ns in range(begin_ns, begin_ns + 1400 * interval_ns, interval_ns):
        left.add(tick_ns, Reading("diskstats", FIELDS, tick_ns, disk, [(1, 2)]))
    (((stream, _), batches),) = left.close().items()

    async def test(site: Site) -> None:
        def seqs() -> set[int]:
            return {e.seq for e in site.envelopes() if e.stream == stream}

        all_there = partial(site.broker.until, lambda: seqs() >= set(range(batches)))  # not live ones alone
        await site.run(all_there, site.settings(batch_samples=7))
        joined = [e.n for e in site.joined() if e.seq < batches]
        assert sum(joined) == 1400
        assert min(joined[:-1]) >= 60

    site_test(test, tmp_path)


def test_a_publish_that_is_never_acknowledged_is_made_again(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async def withhold() -> None:
            await site.published(1)
            site.broker.acknowledge = False
            stuck = len(site.envelopes())
            await site.published(stuck + 1)
            site.broker.acknowledge = True
            site.broker.hang_up()
            again = site.envelopes()[stuck].seq
            await site.broker.until(lambda: [e.seq for e in site.envelopes()].count(again) > 1)
            await site.broker.until(lambda: {e.seq for e in site.envelopes()} >= set(range(again + 3)))

        await site.run(withhold)

    site_test(test, tmp_path)


def test_what_the_broker_lost_is_sent_again_once_the_aggregator_acknowledges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_agent.transport.redelivery._LEAST_SECONDS", 0.3)

    async def test(site: Site) -> None:
        async def acknowledge_all_but_the_first() -> None:
            await site.published(1)
            lost = site.envelopes()[0].seq
            await site.comes_again(
                lost, lambda: site.acknowledge(*(e for e in site.envelopes() if e.seq != lost))
            )

        await site.run(acknowledge_all_but_the_first)

    site_test(test, tmp_path)


def test_what_is_passed_over_by_acknowledgements_is_sent_again_soon_at_any_age_of_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_agent.transport.redelivery._LEAST_SECONDS", 3600.0)

    async def test(site: Site) -> None:
        async def acknowledge_all_but_one() -> None:
            await site.published(6)  # the last of which is no backlog of the time before the connection
            monkeypatch.setattr("laggard_agent.transport.redelivery._LEAST_SECONDS", 0.1)
            lost = site.envelopes()[-1].seq
            await site.comes_again(
                lost, lambda: site.acknowledge(*(e for e in site.envelopes() if e.seq != lost))
            )

        await site.run(acknowledge_all_but_one)

    site_test(test, tmp_path)


def test_a_schema_that_got_lost_is_sent_again_with_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_agent.transport.redelivery._LEAST_SECONDS", 3600.0)

    async def test(site: Site) -> None:
        async def acknowledge_nothing_of_a_stream() -> None:
            await site.published(2)
            monkeypatch.setattr("laggard_agent.transport.redelivery._LEAST_SECONDS", 0.1)
            stream, seen = site.envelopes()[0].stream, len(site.schemas())
            nothing = wire.encode_ack([Ack(stream, "diskstats", ())])
            await site.comes_again(0, lambda: site.broker.publish("laggard/1/site/ack/oss-1", nothing))
            assert len(site.schemas()) > seen

        await site.run(acknowledge_nothing_of_a_stream)

    site_test(test, tmp_path)


def test_a_connection_that_is_lost_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"

    async def test(site: Site) -> None:
        async def hang_up() -> None:
            await site.published(1)
            monkeypatch.setattr("laggard_agent.transport.pacing._LEAST_SECONDS", 3600.0)
            monkeypatch.setattr("laggard_agent.transport.pacing._MOST_SECONDS", 3600.0)
            site.broker.hang_up()
            enough = segment_bytes(spool) + 1000
            await async_wait_until(lambda: segment_bytes(spool) >= enough)
            assert len(site.broker.logins) == 1

        await site.run(hang_up)

    site_test(test, tmp_path)


def test_what_is_on_a_disk_that_comes_late_is_sent_without_a_new_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_agent.spool.spool._TRY_DISK_EVERY", 2)
    spool, elsewhere = tmp_path / "spool", tmp_path / "unmounted"

    async def test(site: Site) -> None:
        await site.broker.stop()

        async def fill() -> None:
            await async_wait_until(lambda: segment_bytes(spool) >= 1500)

        await site.run(fill)
        spool.rename(elsewhere)
        spool.touch()  # nothing can be kept there
        await site.broker.start()

        async def mount() -> None:
            await site.published(2)
            streams = {e.stream for e in site.envelopes()}
            spool.unlink()
            elsewhere.rename(spool)
            await site.broker.until(
                lambda: {0, 1, 2} <= {e.seq for e in site.envelopes() if e.stream not in streams}
            )

        await site.run(mount)
        assert len(site.broker.logins) == 1

    site_test(test, tmp_path)


def test_a_new_disk_raises_the_epoch_and_its_schema_comes_first(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async def plug_in() -> None:
            await site.published(1)
            tree(site.folder / "proc", {"new": disk_line("sdc", *range(17)) + disk_line("sda", *range(17))})
            (site.folder / "proc" / "new").rename(site.folder / "proc" / "diskstats")
            await site.broker.until(lambda: any(e.schema_epoch == 2 for e in site.envelopes()))

        await site.run(plug_in)
        topics = [(m.topic, m.payload) for m in site.broker.messages]
        of_data = next(
            i
            for i, (topic, p) in enumerate(topics)
            if "data" in topic and wire.decode_envelope(p).schema_epoch == 2
        )
        of_schema = next(
            i for i, (topic, p) in enumerate(topics) if "schema" in topic and wire.decode_schema(p).epoch == 2
        )
        assert of_schema < of_data
        assert [c.id for c in site.schemas()[-1].components] == ["sda", "sdb", "sdc"]

    site_test(test, tmp_path)


def test_a_collector_that_fails_is_in_the_status_at_once(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        def failed() -> bool:
            collectors = site.states()[-1]["collectors"]
            assert isinstance(collectors, dict)
            return bool(collectors) and not collectors["diskstats"]["success"]

        async def break_it() -> None:
            await site.published(1)
            (site.folder / "proc" / "diskstats").unlink()
            await site.broker.until(failed)
            site.disks(2)
            await site.broker.until(lambda: not failed())

        await site.run(break_it)

    site_test(test, tmp_path)


def test_hostile_acknowledgements_change_nothing(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async def lie() -> None:
            await site.published(1)
            ack = "laggard/1/site/ack/oss-1"
            stream = site.envelopes()[0].stream
            beyond = Ack(stream, "diskstats", ((2**40, 2**64 - 1),))
            for payload in (
                b"",
                b"\xc1",
                b"\x93\x01",
                random.Random(1).randbytes(1000),
                wire.encode_ack([beyond]),
            ):
                site.broker.publish(ack, payload)
            site.broker.publish(ack, wire.encode_ack([Ack(bytes(16), "diskstats", ((0, 9),))]))
            await site.published(4)

        await site.run(lie)
        site.broker.messages.clear()
        await site.run(lambda: site.published(5))
        assert {0, 1, 2, 3} <= {e.seq for e in site.envelopes()}

    site_test(test, tmp_path)


def test_user_name_and_password_reach_the_broker(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        password = site.folder / "password"
        password.write_text("swordfish\n")
        password.chmod(0o600)
        mqtt = AgentMqttSettings(port=site.broker.port, username="oss-1", password_file=password)
        await site.run(lambda: site.published(1), site.settings(mqtt=mqtt))
        assert site.broker.logins[0] == ("laggard-oss-1@site", "oss-1", b"swordfish")

    site_test(test, tmp_path)


def test_a_password_that_is_renewed_is_used_by_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("laggard_agent.transport.pacing._LEAST_SECONDS", 0.05)

    async def test(site: Site) -> None:
        password = site.folder / "password"
        password.write_text("swordfish\n")
        password.chmod(0o600)
        mqtt = AgentMqttSettings(port=site.broker.port, username="oss-1", password_file=password)

        async def renew() -> None:
            await site.published(1)
            password.chmod(0o644)  # not to be used, and no reason to end
            site.broker.hang_up()
            came = len(site.broker.logins)
            await async_wait_until(lambda: any("password_file" in message for message in caplog.messages))
            assert len(site.broker.logins) == came
            password.write_text("marlin\n")
            password.chmod(0o600)
            await site.broker.until(lambda: len(site.broker.logins) > came)

        await site.run(renew, site.settings(mqtt=mqtt))
        assert [given for _, _, given in site.broker.logins] == [b"swordfish", b"marlin"]

    site_test(test, tmp_path)


def test_a_broker_that_refuses_us_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(site: Site) -> None:
        site.broker.refuse_with = 5
        await site.run(lambda: site.broker.until(lambda: len(site.broker.logins) >= 2))
        warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert "uthorized" in warnings[0]

    site_test(test, tmp_path)


def test_a_broker_that_accepts_and_never_answers_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        connected = asyncio.Event()
        silent: set[asyncio.StreamWriter] = set()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            silent.add(writer)
            connected.set()

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await site.run(lambda: _set(connected), site.settings(mqtt=AgentMqttSettings(port=port)))
            for writer in silent:
                writer.close()

    async def _set(event: asyncio.Event) -> None:
        await event.wait()

    site_test(test, tmp_path)


def test_a_collector_that_never_returns_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """Opening a FIFO that nobody writes to blocks, as a read from a dead file system does."""

    async def test(site: Site) -> None:
        (site.folder / "proc" / "diskstats").unlink()
        os.mkfifo(site.folder / "proc" / "diskstats")
        for name in ("stat", "meminfo", "loadavg"):
            (site.folder / "proc" / name).symlink_to(f"/proc/{name}")
        both = site.settings(collectors=("diskstats", "host"))
        await site.run(lambda: site.broker.until(lambda: len(site.envelopes("host")) >= 2), both)
        assert site.states()[-1]["state"] == "stopped"
        os.close(
            os.open(site.folder / "proc" / "diskstats", os.O_WRONLY | os.O_NONBLOCK)
        )  # lets the thread go

    site_test(test, tmp_path)


def test_a_spool_whose_disk_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_agent.transport.publisher._MAX_QUEUED_BATCHES", 3)

    async def test(site: Site) -> None:
        stop, answers = asyncio.Event(), threading.Event()
        app = App(site.settings(), Roots(tmp_path / "proc", None))
        task = asyncio.create_task(app.run(stop))
        await site.published(1)
        hanging = asyncio.ensure_future(app._worker.call(answers.wait))
        await async_wait_until(lambda: app._worker.waiting >= 3)
        stop.set()
        await asyncio.wait_for(task, LIMIT_SECONDS)
        answers.set()
        await hanging

    site_test(test, tmp_path)


def test_an_error_on_a_thread_ends_the_agent_and_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(_: Spool, batch: EncodedBatch) -> None:
        raise ZeroDivisionError(batch.source)

    monkeypatch.setattr(Spool, "append", wrong)

    async def test(site: Site) -> None:
        with pytest.raises(ExceptionGroup) as failed:
            async with time_limit():
                await App(site.settings(), Roots(tmp_path / "proc", None)).run(asyncio.Event())
        assert failed.group_contains(ZeroDivisionError, match="diskstats")

    site_test(test, tmp_path)


def test_a_batch_that_waits_for_its_moment_is_not_sent_by_the_backlog_too(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        # This node's moment is late in the interval, so that the backlog catches up with live batches.
        node = max((f"oss-{i}" for i in range(50)), key=lambda name: splay_ns("site", name, 10**9))
        settings = site.settings(node=node, interval_seconds=0.1, batch_samples=1)

        def seqs() -> list[int]:
            sent = [m for m in site.broker.messages if m.topic.endswith(f"{node}/data/diskstats")]
            return [e.seq for m in sent for e in apart(wire.decode_envelope(m.payload))]

        await site.run(lambda: site.broker.until(lambda: len(seqs()) >= 12), settings)
        site.broker.messages.clear()
        await site.run(lambda: site.broker.until(lambda: len(seqs()) >= 30), settings)
        assert sorted(seqs()) == sorted(set(seqs()))

    site_test(test, tmp_path)


def test_a_connection_that_does_not_last_is_tried_ever_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another agent has this one's name: the broker drops each for the other."""
    pauses: list[float] = []

    async def note(_: Publisher, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(Publisher, "_pause", note)

    async def test(site: Site) -> None:
        async def drop_each() -> None:
            for i in range(5):
                await site.published(i + 1)
                site.broker.hang_up()
                await site.broker.until(lambda i=i: len(site.broker.logins) > i + 1)  # type: ignore[misc]

        await site.run(drop_each)
        assert all(2**i / 2 <= pauses[i] <= 2**i for i in range(5))

    site_test(test, tmp_path)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_tls_handshake_that_fails_leaves_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """paho leaves the socket to the garbage collector, which seldom runs by itself."""
    pause = Publisher._pause
    monkeypatch.setattr(Publisher, "_pause", lambda self, seconds: pause(self, min(seconds, 0.01)))
    certificate, key = tmp_path / "broker.crt", tmp_path / "broker.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=another",
        "-days",
        "1",
    ]
    command += ["-keyout", str(key), "-out", str(certificate)]
    run_command(command)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def test(site: Site) -> None:
        tries: list[bytes] = []
        enough = asyncio.Event()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Goes on in TLS with a certificate of another name."""
            tries.append(b"")
            with contextlib.suppress(OSError):
                await writer.start_tls(context)
            writer.close()
            if len(tries) == 8:
                enough.set()

        async def until_enough() -> None:
            await enough.wait()

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            mqtt = AgentMqttSettings(port=server.sockets[0].getsockname()[1], ca_file=certificate)
            await site.run(until_enough, site.settings(mqtt=mqtt))
        sockets = [each for each in gc.get_objects() if isinstance(each, ssl.SSLSocket)]
        assert len(sockets) < len(tries) // 2  # the last attempts are not over yet

    gc.collect()
    gc.disable()
    try:
        site_test(test, tmp_path)
    finally:
        gc.enable()
        gc.collect()


def test_twelve_agents_in_one_loop(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        stop = asyncio.Event()
        apps = []
        for i in range(12):
            settings = site.settings(node=f"oss-{i}", spool=SpoolSettings(directory=tmp_path / f"spool-{i}"))
            apps.append(App(settings, Roots(tmp_path / "proc", None)).run(stop))
        tasks = [asyncio.create_task(app) for app in apps]

        def everyone() -> bool:
            nodes = [m.topic.split("/")[4] for m in site.broker.messages if "/data/" in m.topic]
            return all(nodes.count(f"oss-{i}") >= 2 for i in range(12))

        await site.broker.until(everyone)
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), LIMIT_SECONDS)

    site_test(test, tmp_path)


def test_two_agents_with_one_spool(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async def second() -> None:
            await site.published(1)
            with pytest.raises(ServiceError, match="in use by another agent"):
                await App(site.settings(), Roots(tmp_path / "proc", None)).run(asyncio.Event())

        await site.run(second)

    site_test(test, tmp_path)


def test_the_service_manager_hears_that_it_samples_and_that_it_lives(tmp_path: Path) -> None:
    with manager(address := str(tmp_path / "notify")) as listening:
        heard: list[list[str]] = []

        def pings() -> int:
            heard.extend(told(listening))
            return sum(lines == ["WATCHDOG=1"] for lines in heard)

        async def pinged(site: Site) -> None:
            await async_wait_until(lambda: pings() >= 3)
            await site.broker.until(lambda: bool(site.states()))

        async def test(site: Site) -> None:
            await site.run(lambda: pinged(site), notifier=Notifier(address, watchdog_seconds=0.3))

        site_test(test, tmp_path)
        heard += told(listening)
    assert heard[0][0] == "READY=1"
    assert heard[0][1].startswith("STATUS=node oss-1: all collectors work, ")


def test_the_service_manager_hears_nothing_while_a_sampler_misses_its_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    watched = threading.Event()

    def works(sampler: Sampler) -> bool:
        watched.set()
        return not stuck.is_set()

    monkeypatch.setattr(Sampler, "works", works)
    with manager(address := str(tmp_path / "notify")) as listening:

        async def sticks(site: Site) -> None:
            await site.published(1)
            stuck.set()
            watched.clear()
            await site.broker.until(watched.is_set)
            told(listening)
            watched.clear()
            await site.broker.until(watched.is_set)
            assert ["WATCHDOG=1"] not in told(listening)

        async def test(site: Site) -> None:
            await site.run(lambda: sticks(site), notifier=Notifier(address, watchdog_seconds=0.3))

        site_test(test, tmp_path)
