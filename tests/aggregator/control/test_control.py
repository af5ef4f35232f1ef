"""The commands, the control socket and the requests; the state directory is a real one."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.cli.main import main
from laggard_aggregator.cli.user_times import duration_seconds
from laggard_aggregator.control import socket as control
from laggard_aggregator.control import storage
from laggard_aggregator.control.requests import RequestHandler
from laggard_aggregator.control.socket import MOST_BYTES, NAME, Control, at
from laggard_aggregator.engine.machine import Machine
from laggard_common.errors import ConfigError, StateError
from tests.support.builders.site import (
    SECOND,
    START,
    close,
    new_core,
    receive,
    schema,
    schema_message,
    steps,
)
from tests.support.clock import HandClock
from tests.support.loop_thread import beside
from tests.support.wait import LIMIT_SECONDS

GROUP = "storage/diskstats"


@dataclass
class Site:
    state: Path
    core: Machine
    clock: HandClock
    requests: RequestHandler
    ended: list[AlarmEvent]

    def told(self, *words: str) -> int:
        return main([*words, "--state", str(self.state)])

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.state / storage.AUDIT_FILE).read_text().splitlines()]


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    """An aggregator's core with a standing alarm, and its control socket in a deep directory."""
    core = new_core()
    for messages, now_ns in steps(26):
        receive(core, messages)
        close(core, now_ns)
    core.admission.acks.durable(core.sequence.last)
    state = tmp_path.joinpath(*["a-long-name-of-a-folder"] * 6)
    state.mkdir(parents=True)
    clock, ended = HandClock(START + 130 * SECOND), list[AlarmEvent]()
    requests = RequestHandler(state, core, clock, (asyncio.Lock(),), ended.extend)
    with served(state, requests):
        yield Site(state, core, clock, requests, ended)


@contextmanager
def served(state: Path, requests: RequestHandler) -> Iterator[None]:
    listening = threading.Event()

    async def run(stop: asyncio.Event) -> None:
        async with Control(state, requests.answer):
            listening.set()
            await stop.wait()

    with beside(run):
        assert listening.wait(LIMIT_SECONDS)
        yield


def test_silence(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.told("silence", "oss-5/sd0", "--for", "2h", "--comment", "disk ordered") == 0
    assert "silence of oss-5/sd0 noted: 1 component (oss-5/sd0)" in capsys.readouterr().out
    (decision,) = site.core.overrides.standing
    assert (decision.kind, decision.target, decision.comment) == ("silence", "oss-5/sd0", "disk ordered")
    assert decision.until == decision.at + 7200
    assert not site.core.overrides.concern(GROUP)
    assert storage.load(site.state).standing == (decision,)
    assert site.audit() == [
        {
            "at": "2027-01-15T08:02:10Z",
            "by": decision.by,
            "from": "control socket",
            "do": "silence",
            "target": "oss-5/sd0",
            "seconds": 7200.0,
            "comment": "disk ordered",
        }
    ]
    assert site.told("silence", "oss-5/sd0", "--end") == 0
    assert site.core.overrides.standing == storage.load(site.state).standing == ()
    assert [line["do"] for line in site.audit()] == ["silence", "end"]


def test_comments_and_tickets(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    ticket = "https://tickets.example.org/4711"
    assert site.told("comment", "oss-5/sd0", "disk ordered", "--ticket", ticket) == 0
    assert "comment on oss-5/sd0 noted: 1 component (oss-5/sd0)" in capsys.readouterr().out
    site.clock.ns += SECOND
    assert site.told("comment", "oss-5/sd0", "it is here", "--for", "1d") == 0
    standing = site.core.overrides.standing
    assert [(each.kind, each.comment, each.ticket) for each in standing] == [
        ("comment", "disk ordered", ticket),
        ("comment", "it is here", ""),
    ]
    assert storage.load(site.state).standing == standing
    assert site.core.overrides.silenced("oss-5/wwn-0", "oss-5/sd0") is None
    assert not site.core.overrides.concern(GROUP)
    assert site.audit()[0]["ticket"] == ticket
    site.clock.ns += SECOND
    assert site.told("silence", "oss-5", "--ticket", ticket) == 0
    assert site.core.overrides.standing[-1].ticket == ticket
    assert site.told("comment", "oss-5/sd0", "--end") == 0
    assert [each.kind for each in site.core.overrides.standing] == ["silence"]


def test_a_silence_of_a_node_before_its_first_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right after the start a node is known before any of its components is compared."""
    core, clock = new_core(), HandClock(START + SECOND)
    receive(core, [schema_message(replace(schema("oss-5"), source="host"))])
    requests = RequestHandler(tmp_path, core, clock, (asyncio.Lock(),), list[AlarmEvent]().extend)
    with served(tmp_path, requests):
        assert main(["silence", "oss-5", "--state", str(tmp_path)]) == 0
        noted = (
            "silence of oss-5 noted; none of its components is compared yet; until 2027-01-15 10:00:01 UTC\n"
        )
        assert capsys.readouterr().out == noted, "two hours, as no end is named"
        assert main(["silence", "oss-6", "--state", str(tmp_path)]) == 1
    (decision,) = core.overrides.standing
    assert decision.covers("oss-5/sda", "oss-5")


def test_drain_and_replaced_reach_the_next_close(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.told("drain", "oss-5") == 0
    assert site.told("replaced", "oss-[67]/sd1") == 0
    assert "2 components (oss-6/sd1, oss-7/sd1)" in capsys.readouterr().out
    kept = storage.load(site.state)
    store = site.core.stores[GROUP]
    drained, afresh = kept.at_close(GROUP, store.compared, site.core.names)
    assert drained == ("oss-5/wwn-0", "oss-5/wwn-1")
    assert set(afresh) == {*drained, "oss-6/wwn-1", "oss-7/wwn-1"}


def test_forget(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.told("forget", "oss-5") == 1
    assert "oss-5: still sends samples" in capsys.readouterr().err
    site.clock.ns += 600 * SECOND
    assert site.told("forget", "oss-5") == 0
    assert "2 components (oss-5/sd0, oss-5/sd1); nodes: oss-5" in capsys.readouterr().out
    assert [t.kind for t in site.ended] == ["cleared"]
    assert "oss-5" not in site.core.admission.nodes


@pytest.mark.parametrize("command", ["silence", "drain", "replaced", "forget"])
def test_what_nobody_is_called_is_one_clear_line(
    site: Site, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.told(command, "oss-99") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"laggard {command}: oss-99: no ")
    assert said.count("\n") == 1
    assert not (site.state / storage.AUDIT_FILE).exists()


def test_to_end_what_was_not_decided_is_one_clear_line(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.told("drain", "oss-5", "--end") == 1
    assert "oss-5: no drain of exactly this target is in force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["silence"], "TARGET: expected"),
        (["silence", "a", "--for", "soon"], "--for: expected a time such as 90min"),
        (["silence", "a", "--for", "0s"], "--for: expected"),
        (["drain", "a", "--until", "2001-01-31"], "--until: expected a time in the future"),
        (["replaced", "a\nb"], "TARGET: expected a node"),
        (
            ["comment", "a", "b", "--ticket", "4711"],
            "--ticket: expected http://... or https://..., got '4711'",
        ),
    ],
)
def test_a_wrong_command_is_one_clear_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--state", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("left", ["nothing", "a folder", "a socket that nobody serves"])
def test_no_aggregator_is_one_clear_line(
    left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    if left != "nothing":
        state.mkdir()
    if left == "a socket that nobody serves":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(state / NAME)) if len(str(state)) < 90 else (state / NAME).touch()
    assert main(["drain", "oss-1", "--state", str(state)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(state) in said


def raw(site: Site, data: bytes) -> bytes:
    address, handle = at(site.state)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_SECONDS)
        connection.connect(address)
        os.close(handle)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"[" * 10_000 + b"\n",
        b'{"do": "silence", "target": ["oss-5"]}\n',
        b'{"do": "silence", "target": "oss-5", "seconds": NaN}\n',
        b'{"do": "silence", "target": "oss-5", "seconds": true}\n',
        b'{"do": "silence", "target": "oss-5", "seconds": -1}\n',
        b'{"do": "silence", "target": "oss-5", "comment": "a\\nb"}\n',
        b'{"do": "shutdown", "target": "oss-5"}\n',
        b'{"do": "comment", "target": "oss-5"}\n',
        b'{"do": "comment", "target": "oss-5", "ticket": "javascript:alert(1)"}\n',
        b'{"do": ["drain"], "target": "oss-5"}\n',
    ],
)
def test_a_request_that_is_none_is_an_error_and_changes_nothing(site: Site, request_: bytes) -> None:
    assert set(json.loads(raw(site, request_))) == {"error"}
    assert site.core.overrides.standing == ()


def test_a_request_without_end_is_cut_off_and_others_are_served(site: Site) -> None:
    assert raw(site, b"x" * (2 * MOST_BYTES)) == b""
    assert json.loads(raw(site, b'{"do": "drain", "target": "oss-5"}\n'))["count"] == 2


def test_an_answer_may_take_its_time_and_is_waited_for(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "REQUEST_SECONDS", 1.0)

    async def story() -> None:
        asked = asyncio.Event()

        async def slow(request: Mapping[str, Any], by: str, origin: str) -> dict[str, Any]:
            asked.set()
            await asyncio.sleep(1.1)
            return await site.requests.answer(request, by, origin)

        async with Control(tmp_path, slow):
            reader, writer = await asyncio.open_unix_connection(tmp_path / NAME)
            writer.write(b'{"do": "silence", "target": "oss-5"}\n')
            await asked.wait()
        assert json.loads(await reader.readline())["count"] == 2
        writer.close()

    asyncio.run(story())
    assert storage.load(site.state).standing


def test_nothing_is_forgotten_while_a_window_is_judged(site: Site) -> None:
    judging, order = asyncio.Lock(), asyncio.Lock()
    requests = RequestHandler(site.state, site.core, site.clock, (judging, order), site.ended.extend)
    site.clock.ns += 600 * SECOND

    async def story() -> None:
        async with judging:
            asked = asyncio.create_task(requests.answer({"do": "forget", "target": "oss-5"}, "root", "here"))
            await asyncio.sleep(0)
            assert not order.locked(), "messages are taken in meanwhile"
            assert "oss-5" in site.core.admission.nodes
        assert (await asked)["nodes"] == ["oss-5"]

    asyncio.run(story())


def test_only_owner_and_group_may_use_the_socket(site: Site) -> None:
    assert (site.state / NAME).stat().st_mode & 0o777 == 0o660


def test_a_socket_that_a_killed_process_left_is_taken_over(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / NAME).touch()
    with served(other, site.requests):
        assert main(["drain", "oss-5", "--state", str(other)]) == 0
    assert not (other / NAME).exists()


def test_decisions_that_cannot_be_kept_are_said(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    (site.state / storage.FILE).mkdir()
    assert site.told("drain", "oss-5") == 1
    assert "done, but not saved, so a restart will forget it" in capsys.readouterr().err
    assert [each.kind for each in site.core.overrides.standing] == ["drain"]


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"decisions": 1, "afresh": {}}', b"\xff", b"{}"])
def test_a_file_that_holds_no_decisions_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / storage.FILE).write_bytes(data)
    with pytest.raises(StateError, match=r"decisions\.json: holds no decisions"):
        storage.load(tmp_path)


def test_a_flipped_bit_in_decisions_is_noticed_and_those_before_are_used(site: Site) -> None:
    assert site.told("silence", "oss-5", "--for", "1h") == 0
    before = storage.load(site.state).standing
    assert site.told("drain", "oss-6", "--comment", "é") == 0
    path = site.state / storage.FILE
    whole, now = path.read_bytes(), storage.load(site.state).standing
    assert len(now) == 2
    noticed = 0
    for place in range(0, len(whole), 3):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        overrides, damaged = storage.recover(site.state)
        assert overrides.standing == (before if damaged else now)
        assert storage.load(site.state).standing == overrides.standing
        assert (site.state / storage.DAMAGED_FILE).exists() >= damaged
        noticed += damaged
    assert noticed > len(whole) / 5


def test_without_any_decisions_that_can_be_read_there_are_none(tmp_path: Path) -> None:
    for name in (storage.FILE, storage.BEFORE_FILE):
        (tmp_path / name).write_bytes(b"{")
    overrides, damaged = storage.recover(tmp_path)
    assert (overrides.standing, damaged) == ((), True)
    assert storage.recover(tmp_path)[1] is False


def test_edited_decisions_need_no_digest(tmp_path: Path) -> None:
    (tmp_path / storage.FILE).write_text('{"decisions": [], "afresh": {"luns": ["oss-5"]}}')
    assert storage.load(tmp_path).restarts == {"luns": {"oss-5"}}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("10min", 600), ("2d", 172_800), ("1w", 604_800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds("--for", text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1y", "1 h", "٣h", "1e9d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match="--for"):
        duration_seconds("--for", text)


@pytest.mark.parametrize(
    "words", [("--end", "--for", "1h"), ("--for", "1h", "--until", "2999-01-01"), ("--until", "-1h", "--end")]
)
def test_a_decision_has_one_end(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["silence", "oss-5", *words])
    assert "not allowed with argument" in capsys.readouterr().err


def test_an_end_by_time_and_a_reason(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    end = datetime.now(UTC) + timedelta(hours=3)
    words = ("silence", "oss-5", "--until", end.isoformat(), "--why", "new disk", "--json")
    assert site.told(*words) == 0
    (standing,) = site.core.overrides.standing
    assert standing.comment == "new disk"
    assert 3 * 3600 - LIMIT_SECONDS < standing.until - site.clock.ns / 1e9 <= 3 * 3600
    answer = json.loads(capsys.readouterr().out)
    assert answer["components"] == ["oss-5/sd0", "oss-5/sd1"]


def test_what_is_over_lapses(site: Site) -> None:
    assert site.told("silence", "oss-5", "--for", "1h") == 0
    site.clock.ns += 3599 * SECOND
    asyncio.run(site.requests.expire())
    assert site.core.overrides.standing
    site.clock.ns += SECOND
    asyncio.run(site.requests.expire())
    assert site.core.overrides.standing == storage.load(site.state).standing == ()
