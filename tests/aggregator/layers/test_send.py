"""Recordings that are sent: all of it in documents, the same rows as a stored one, all or nothing."""

import json
from pathlib import Path

import pytest
import zstandard

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.cli.main import main
from laggard_aggregator.ingest.batches import Document
from laggard_aggregator.layers import send, store
from laggard_common.wire.limits import MAX_EVENT_BYTES
from tests.aggregator.layers.test_store import recording
from tests.support.builders.archives import START_NS
from tests.support.builders.layer_traces import TraceBuilder


def archived(outbox: Path, archive: Path, node: str, first_lsn: int = 1) -> None:
    """What the agent and the aggregator make of an outbox."""
    writer = ArchiveWriter(archive, "lab", START_NS)
    for lsn, path in enumerate(sorted(outbox.iterdir()), first_lsn):
        content = path.read_bytes()
        assert 0 < len(content) <= MAX_EVENT_BYTES
        payload = zstandard.ZstdCompressor().compress(content)
        source = path.suffix[1:]
        writer.document(Document(lsn, "lab", "compute", node, source, START_NS, payload, len(content)))
        path.unlink()
    writer.flush()
    assert writer.refused_documents == 0


def test_a_sent_recording_has_the_rows_of_a_stored_one(tmp_path: Path) -> None:
    archive, outbox, made = tmp_path / "archive", tmp_path / "outbox", recording(tmp_path / "run")
    outbox.mkdir()
    assert main(["layers", "send", str(made), "--outbox", str(outbox)]) == 0
    assert {path.stat().st_mode & 0o777 for path in outbox.iterdir()} == {0o640}
    archived(outbox, archive, "cn-1")
    assert main(["layers", str(made), "--archive", str(archive), "--site", "lab", "--node", "cn-1"]) == 0
    reader = ArchiveReader(archive)
    sent, stored = reader.table("events", "layers"), reader.table("layers", store.SOURCE)
    names = [name for name in stored.column_names if name not in ("stored", "device")]
    assert sent.select(names).to_pylist() == stored.select(names).to_pylist()
    assert [each or "" for each in sent["device"].to_pylist()] == stored["device"].to_pylist()


def test_recordings_of_nodes_meet_and_a_second_copy_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, outbox, made = tmp_path / "archive", tmp_path / "outbox", recording(tmp_path / "run")
    outbox.mkdir()
    for copy, node in enumerate(("cn-1", "cn-2", "cn-2")):
        assert main(["layers", "send", str(made), "--name", "r", "--outbox", str(outbox)]) == 0
        archived(outbox, archive, node, 1 + 10 * copy)
    capsys.readouterr()
    assert main(["layers", "received", "--archive", str(archive), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["recording"], each["node"], each["requests"], each["sent"]) for each in found] == [
        ("r", "cn-1", 19, 19),
        ("r", "cn-2", 19, 19),
    ]
    assert main(["layers", "received", "--archive", str(archive), "r"]) == 0
    text = capsys.readouterr().out
    assert "cn-1" in text
    assert "cn-2" in text
    assert main(["layers", "received", "--archive", str(archive), "other\x1b"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_large_recording_is_several_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "ROWS", 7)
    outbox, made = tmp_path / "outbox", tmp_path / "run"
    outbox.mkdir()
    made.mkdir()
    built = TraceBuilder()
    for at in range(30):
        built.request("application", at, at * 100.0, at * 100.0 + 90, offset=0, file=f"file-{at}")
    built.write(made / "events.csv")
    assert main(["layers", "send", str(made), "--outbox", str(outbox)]) == 0
    assert len(list(outbox.glob("*.layers"))) == 5
    archived(outbox, tmp_path / "archive", "cn-1")
    rows = ArchiveReader(tmp_path / "archive").table("events", "layers").to_pylist()
    assert [row["request"] for row in rows] == list(range(30))
    assert {row["file"] for row in rows} == {f"file-{at}" for at in range(30)}


@pytest.mark.parametrize("outbox", ["missing", "small"])
def test_a_recording_that_cannot_be_left_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, outbox: str
) -> None:
    made = recording(tmp_path / "run")
    (tmp_path / "small").mkdir()
    if outbox == "small":
        monkeypatch.setattr(send, "encode_part", lambda _: bytes(MAX_EVENT_BYTES))
    options = ["--outbox", str(tmp_path / outbox), "--max-mib", "1"]
    assert main(["layers", "send", str(made), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ("[outbox]" if outbox == "missing" else "--max-mib") in line
    assert list((tmp_path / "small").iterdir()) == []


def test_a_report_that_is_none_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    for number, content in enumerate((b"{}", b"[" * 100_000, b'{"recording": 1, "requests": "x"}', b"\xff")):
        (outbox / f"{number}.layer_reports").write_bytes(content)
    archived(outbox, tmp_path / "archive", "cn-1")
    assert main(["layers", "received", "--archive", str(tmp_path / "archive")]) == 0
    assert "No recordings" in capsys.readouterr().out
