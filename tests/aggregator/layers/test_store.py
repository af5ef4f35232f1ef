"""Recordings in the archive: rows of all layers, of several nodes in one place, deleted as raw data."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from laggard_aggregator.archive import layout, retention
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.cli.main import main
from laggard_aggregator.layers import store
from laggard_aggregator.settings.aggregator import ArchiveTable
from tests.support.builders.layer_traces import TraceBuilder

DOCUMENT = Path(__file__).parents[3] / "docs" / "archive.md"


def recording(folder: Path) -> Path:
    folder.mkdir()
    built = TraceBuilder()
    for at in range(10):
        built.request("application", at, at * 100.0, at * 100.0 + 90, offset=at * 65536)
        if at != 3:
            built.request("device", at, at * 100.0 + 10, at * 100.0 + 80, offset=at * 65536, file="data")
    built.write(folder / "events.csv")
    return folder


def test_recordings_of_two_nodes_meet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "archive"
    for node in ("cn-1", "cn-2"):
        made = recording(tmp_path / f"run-{node}")
        assert main(["layers", str(made), "--archive", str(archive), "--site", "lab", "--node", node]) == 0
    assert "stored as" in capsys.readouterr().err
    rows = ArchiveReader(archive).table("layers", store.SOURCE).drop_columns(["stored"]).to_pylist()
    assert len(rows) == 2 * (10 + 9)
    assert {(row["node"], row["recording"]) for row in rows} == {("cn-1", "run-cn-1"), ("cn-2", "run-cn-2")}
    above = [row for row in rows if row["node"] == "cn-1" and row["layer"] == "application"]
    below = [row for row in rows if row["node"] == "cn-1" and row["layer"] == "device"]
    assert [row["below"] for row in above] == ["nested"] * 3 + ["none"] + ["nested"] * 6
    assert [row["upper"] for row in below] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert below[3]["admit_ns"] - above[4]["admit_ns"] == 10_000
    assert (above[4]["file"], above[4]["offset"], above[4]["operation"]) == ("data", 4 * 65536, "read")


def test_retention_and_compaction_know_the_table(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    made = recording(tmp_path / "run")
    for _ in range(2):
        assert main(["layers", str(made), "--archive", str(archive), "-o", str(tmp_path / "out")]) == 0
    ((_, where),) = layout.days(archive, "layers")
    assert len(layout.parts(where)) == 2
    tomorrow = pq.read_table(layout.parts(where)[0].path)["stored"][0].value + 2 * 86_400 * 10**9
    retention.compact(archive, tomorrow)
    (merged,) = layout.parts(where)
    assert pq.read_metadata(merged.path).num_rows == 2 * 19
    retention.retain(archive, tomorrow + 400 * 86_400 * 10**9, ArchiveTable())
    assert layout.days(archive, "layers") == []


def test_names_that_are_no_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = recording(tmp_path / "run")
    assert main(["layers", str(made), "--archive", str(tmp_path / "a"), "--site", "../x"]) == 2
    assert "--site" in capsys.readouterr().err


def test_the_document_explains_every_column() -> None:
    text = DOCUMENT.read_text()
    assert [name for name in store.SCHEMA.names if f"`{name}`" not in text] == []
