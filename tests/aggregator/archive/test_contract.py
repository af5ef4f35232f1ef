"""docs/archive.md's promises to other tools, kept without Laggard's reader."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from laggard_aggregator.archive import documents, layout, schemas
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.writer import ArchiveWriter
from laggard_aggregator.jobs.tables import OF_JOBS
from laggard_aggregator.log.entries import WindowClose
from laggard_common.wire.schema import Field
from tests.aggregator.archive.test_writer import MIDNIGHT_NS, SCHEMA, batch, schema_with
from tests.support.builders.archives import START_NS, judgement
from tests.support.builders.batches import SECOND

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "archive.md"


def made(directory: Path) -> None:
    writer = ArchiveWriter(directory, "lab", START_NS)
    grown = schema_with(*SCHEMA.fields, Field("dc_ios"), epoch=2, components=("sda", "sdb"))
    for ordinal, (schema, at_ns) in enumerate([(SCHEMA, START_NS), (grown, MIDNIGHT_NS + 60 * SECOND)]):
        writer.batch(batch(schema, ordinal, at_ns))
        writer.flush()
    writer.window_close(WindowClose(2, "luns", 0.0, 60.0, 62.0))
    writer.judgement(judgement())
    writer.flush()


def test_any_tool_reads_a_source_by_its_partitions(tmp_path: Path) -> None:
    made(tmp_path)
    where = tmp_path / "kind=counters" / "source=diskstats"
    schema = pa.unify_schemas([pa.parquet.read_schema(path) for path in sorted(where.rglob("*.parquet"))])
    dataset = ds.dataset(where, schema=schema.append(pa.field("date", pa.string())), partitioning="hive")
    assert dataset.count_rows() == 2 + 4
    day = dataset.to_table(
        filter=pc.field("date") == "2027-01-16", columns=["node", "name", "tick", "dc_ios"]
    )
    assert day["name"].to_pylist() == ["sda", "sda", "sdb", "sdb"], "a component's ticks lie together"
    assert day["dc_ios"].null_count == 0
    earlier = dataset.to_table(filter=pc.field("date") == "2027-01-15", columns=["dc_ios"])
    assert earlier["dc_ios"].null_count == 2, "a column that a file lacks is null"


def test_verdicts_are_those_that_matter(tmp_path: Path) -> None:
    made(tmp_path)
    reader = ArchiveReader(tmp_path)
    found = reader.table("verdicts", columns=["component", "anomalous", "persistence", "straggler", "end"])
    assert found.to_pylist() == [
        {"component": "a", "anomalous": True, "persistence": 3, "straggler": True, "end": 60.0},
        {"component": "b", "anomalous": False, "persistence": 1, "straggler": False, "end": 60.0},
    ]
    windows = reader.table("windows", columns=["ordinal", "components", "judged", "anomalous", "stragglers"])
    assert windows.to_pylist() == [
        {"ordinal": 2, "components": 4, "judged": 3, "anomalous": 1, "stragglers": 1}
    ]
    alarms = reader.table("alarms", columns=["transition", "component", "at", "severity"])
    assert alarms.to_pylist() == [{"transition": "raised", "component": "a", "at": 60.0, "severity": 2.0}]


def test_columns_are_picked_and_days_bounded(tmp_path: Path) -> None:
    made(tmp_path)
    reader = ArchiveReader(tmp_path)
    assert reader.table("counters", "diskstats", ["rd_ios"], last_day="2027-01-15").num_rows == 2
    assert reader.table("counters", "diskstats", ["rd_ios"], first_day="2027-01-16").num_rows == 4
    assert reader.table("counters", "nothing").num_rows == 0


def test_the_document_explains_every_table_and_column() -> None:
    text = DOCUMENT.read_text()
    for kind in layout.KINDS:
        assert f"`{kind}`" in text
    for schema in (
        schemas.COUNTERS,
        schemas.SCHEMAS,
        schemas.GROUPS,
        schemas.CLOSES,
        schemas.VERDICTS,
        schemas.WINDOWS,
        schemas.ALARMS,
        documents.CONTENT,
        documents.REQUESTS,
        *OF_JOBS.values(),
    ):
        for column in schema.names:
            assert f"`{column}`" in text, column
