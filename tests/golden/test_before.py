"""What the goldens of the earlier version say in so many numbers, and its spools under the present agent."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden import entry, formats, site
from tests.golden.before import continued

GOLDEN: dict[str, Any] = json.loads(continued.PACKED.with_name("continued.json").read_text())


def test_the_state_was_left_with_an_alarm_decisions_and_returned_batches(tmp_path: Path) -> None:
    state = continued.unpacked(tmp_path) / "state"
    entries = formats.journal(state)
    kinds = [each[0] for each in entries]
    assert kinds.count("return") == 2
    (snapshot_at,) = {each["ordinal"] for each in formats.snapshot(formats.newest_snapshot(state))[:1]}
    after = [each[0] for each in entries if each[0] == "batch" and each[1] > snapshot_at]
    assert len(after) > 50
    assert {"decisions.json", "mail.db", "audit.jsonl"} <= {path.name for path in state.iterdir()}


def test_the_golden_has_the_alarm_the_decisions_and_the_seqs() -> None:
    standing = GOLDEN["restarted"]["/api/v1/stragglers"]["stragglers"]
    assert [(one["name"], one["alarm"], one["raised_at"]) for one in standing] == [
        ("oss-5/sda", True, site.START / 1e9 + 40),
        ("oss-5", True, site.START / 1e9 + 40),
    ]
    decided = GOLDEN["restarted"]["/api/v1/decisions"]["decisions"]
    assert [(one["kind"], one["target"]) for one in decided] == [("silence", "oss-1/sda"), ("drain", "oss-8")]
    # All that was taken counts as a duplicate but the batch that was given back.
    assert GOLDEN["again"]["duplicates"] == GOLDEN["again"]["sent"] - 1
    assert GOLDEN["later"]["/api/v1/stragglers"]["stragglers"] == []
    assert len(GOLDEN["mails"]) == 2  # neither alarm is told of again; each mail answers one from before
    assert all(mail["references"].startswith("<laggard.s.") for mail in GOLDEN["mails"])


@pytest.mark.parametrize("how", ["orderly", "killed"])
def test_a_spool_is_taken_over(how: str, tmp_path: Path) -> None:
    left = continued.unpacked(tmp_path / "before") / "spools" / how
    waiting = continued.waiting(left)
    acknowledged = sorted(seq for _, seq in waiting)[:2]

    async def story() -> dict[tuple[bytes, int], entry.wire.Envelope]:
        async with site.broker() as broker:
            path, procfs = continued.agent_files(tmp_path / "agent", broker.port)
            shutil.copytree(left, tmp_path / "agent" / "spool")
            stop = asyncio.Event()
            task = asyncio.create_task(entry.agent(path, procfs).run(stop))
            wanted = {key for key in waiting if key[1] not in acknowledged}
            await broker.until(lambda: wanted <= continued.came(broker).keys())
            # The first new batch may be backlog, and come after the next ones.
            first = max(seq for _, seq in waiting) + 1 if how == "orderly" else 0
            await broker.until(
                lambda: first in {seq for _, seq in continued.came(broker).keys() - waiting.keys()}
            )
            stop.set()
            await task
            return continued.came(broker)

    came = asyncio.run(story())
    for key in came.keys() & waiting.keys():
        assert entry.rows(came[key]) == entry.rows(waiting[key])
    new = came.keys() - waiting.keys()
    (stream,) = {stream for stream, _ in waiting}
    if how == "orderly":  # an orderly end: the stream goes on, and what was acknowledged stays away
        assert {stream for stream, _ in new} == {stream}
        assert min(seq for _, seq in new) == max(seq for _, seq in waiting) + 1
        assert not {(stream, seq) for seq in acknowledged} & came.keys()
    else:  # another boot: seqs may be missing from the files, so a new stream begins
        assert stream not in {stream for stream, _ in new}
        assert min(seq for _, seq in new) == 0


RELEASES = sorted(continued.PACKED.parent.glob("release-*.tar.xz"))


@pytest.mark.parametrize("packed", RELEASES, ids=lambda path: path.name)
def test_the_state_of_a_release_is_continued(packed: Path, tmp_path: Path) -> None:
    """Its alarms, decisions, mails and sequence numbers; nothing is in the archive twice or missing."""
    found = json.loads(json.dumps(asyncio.run(continued.went_on(continued.unpacked(tmp_path, packed)))))
    for when in ("restarted", "later"):
        for path, about in (
            ("/api/v1/stragglers", ("name", "alarm", "raised_at", "since")),
            ("/api/v1/decisions", ("kind", "target", "comment")),
        ):
            (rows,) = (value for value in found[when][path].values() if isinstance(value, list))
            (known,) = (value for value in GOLDEN[when][path].values() if isinstance(value, list))
            told = [[[one[name] for name in about] for one in each] for each in (rows, known)]
            assert told[0] == told[1]
    assert found["again"] == GOLDEN["again"]
    assert found["acknowledged"] == GOLDEN["acknowledged"]
    assert found["mails"] == GOLDEN["mails"]
    rows_of = [{name: table["rows"] for name, table in each["archive"].items()} for each in (found, GOLDEN)]
    assert rows_of[0] == rows_of[1]


@pytest.mark.parametrize("how", ["orderly", "killed"])
@pytest.mark.parametrize("packed", RELEASES, ids=lambda path: path.name)
def test_the_spool_of_a_release_is_sent_with_its_documents(packed: Path, how: str, tmp_path: Path) -> None:
    left = continued.unpacked(tmp_path / "before", packed) / "spools" / how
    waiting = continued.waiting(left)
    streams = {envelope.source: stream for (stream, _), envelope in waiting.items()}
    assert sorted(streams) == ["diskstats", "jobs"]
    acknowledged = {(streams["diskstats"], seq) for seq in (0, 1)}
    assert acknowledged < waiting.keys()
    wanted = waiting.keys() - acknowledged

    async def story() -> dict[tuple[bytes, int], entry.wire.Envelope]:
        async with site.broker() as broker:
            path, procfs = continued.agent_files(tmp_path / "agent", broker.port)
            shutil.copytree(left, tmp_path / "agent" / "spool")
            stop = asyncio.Event()
            task = asyncio.create_task(entry.agent(path, procfs).run(stop))
            await broker.until(lambda: wanted <= continued.came(broker).keys())
            stop.set()
            await task
            return continued.came(broker)

    came = asyncio.run(story())
    if how == "orderly":  # one that was killed may not have noted the acknowledgement
        assert not acknowledged & came.keys()
    for key in wanted:
        assert came[key].source == waiting[key].source
        assert came[key].payload == waiting[key].payload or entry.rows(came[key]) == entry.rows(waiting[key])
