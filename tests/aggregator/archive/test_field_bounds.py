"""One node with ever new fields leaves the archive of the others as it is."""

import dataclasses
from pathlib import Path

import pytest

from laggard_aggregator.archive import retention, schemas
from laggard_aggregator.archive import writer as writer_module
from laggard_aggregator.archive.layout import parts
from laggard_aggregator.archive.writer import ArchiveWriter, FieldBounds
from laggard_aggregator.ingest.batches import Batch
from laggard_common.wire.schema import Field, Schema
from tests.aggregator.archive.test_writer import MIDNIGHT_NS, SCHEMA, batch, files, read, schema_with
from tests.support.builders.archives import START_NS
from tests.support.builders.batches import SECOND

SOURCE = ("diskstats", "site")


def inventive(turn: int, fields: int = 100, node: str = "evil") -> Schema:
    """A schema of a stream of its own, none of whose fields came before."""
    made = schema_with(*(Field(f"{node}{turn}_{n}") for n in range(fields)))
    return dataclasses.replace(made, node=node, stream=turn.to_bytes(16, "big"))


def of(schema: Schema, ordinal: int, at_ns: int = START_NS) -> Batch:
    return dataclasses.replace(batch(schema, ordinal, at_ns), stream=schema.stream)


def test_a_node_with_ever_new_fields_is_left_out_and_counted_and_no_other_is(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    for turn in range(200):
        writer.batch(of(SCHEMA, 2 * turn))
        writer.batch(of(inventive(turn), 2 * turn + 1))
    writer.flush()
    taken = read(tmp_path)
    assert [each.lsn for each in taken if each.schema.node == "oss-1"] == list(range(0, 400, 2))
    assert sum(each.schema.node == "evil" for each in taken) == 2
    assert writer.refused_rows == {"evil": 198 * 2}
    assert writer.dropped_rows == 0
    (name,) = files(tmp_path)
    ((_, schema, _),) = retention._unions(parts((tmp_path / name).parent))
    assert len(schema) == len(schemas.COUNTERS) + 2 + 200


def test_the_bounds_of_a_source_of_a_node_and_of_a_shared_source() -> None:
    bounds = FieldBounds()
    assert bounds.admits(SOURCE, SCHEMA)
    assert bounds.admits(SOURCE, dataclasses.replace(SCHEMA, node="oss-2"))
    assert not bounds.admits(SOURCE, inventive(0, writer_module.MAX_NEW_SHARED_FIELDS + 1))
    assert bounds.admits(SOURCE, inventive(1, writer_module.MAX_NEW_SHARED_FIELDS))
    assert not bounds.admits(SOURCE, inventive(2, 1))
    assert bounds.admits(SOURCE, dataclasses.replace(SCHEMA, node="evil")), "known fields cost nothing"
    for at in range(3):  # as many sources of its own as it likes, but not as many fields
        assert bounds.admits((f"own{at}", "site"), inventive(3 + at, 1024))
    assert not bounds.admits(("own3", "site"), inventive(9, 1024))
    assert bounds.admits(SOURCE, inventive(3, 200, node="oss-3"))
    taken = sum(bounds.admits(SOURCE, inventive(turn, 200, node=f"evil-{turn}")) for turn in range(2, 20))
    assert taken == (schemas.MAX_SOURCE_FIELDS - 2 - 256 - 200) // 200
    assert bounds.admits(SOURCE, SCHEMA)


def test_a_node_that_is_first_leaves_room_for_the_others() -> None:
    """After a start, or in a source that nobody had, whichever node sends first."""
    bounds = FieldBounds()
    assert [bounds.admits(SOURCE, inventive(turn, 1024)) for turn in range(2)] == [True, False]
    for node in ("oss-1", "oss-2"):
        assert bounds.admits(SOURCE, dataclasses.replace(SCHEMA, node=node))
    assert not bounds.admits(SOURCE, inventive(2, 1)), "now it shares the table"
    for turn in range(3):
        assert bounds.admits(SOURCE, inventive(turn, 256, node=f"oss-{turn + 3}"))


def test_many_fields_that_two_nodes_have_are_no_invention() -> None:
    """As a new version of a collector brings them to one node after the other."""
    bounds = FieldBounds()
    for node in ("oss-1", "oss-2"):
        assert bounds.admits(SOURCE, dataclasses.replace(SCHEMA, node=node))
    fields = tuple(Field(f"new_{n}") for n in range(1000))
    grown = schema_with(*SCHEMA.fields, *fields, epoch=2)
    assert [bounds.admits(SOURCE, grown) for _ in range(3)] == [False] * 3
    for turn in range(50):
        assert not bounds.admits(SOURCE, inventive(turn, 257)), "nobody else has them"
    assert len(bounds._sources[SOURCE].asked) == 2, "one of each node"
    assert bounds.admits(SOURCE, dataclasses.replace(grown, node="oss-2"))
    assert bounds.admits(SOURCE, grown)
    assert bounds.admits(SOURCE, inventive(60, 256, "oss-2")), "its own are counted apart"
    other = dataclasses.replace(inventive(61, 900), node="oss-3")
    assert not bounds.admits(SOURCE, other)
    assert not bounds.admits(SOURCE, dataclasses.replace(other, node="oss-4")), "the table is full"


def test_two_nodes_with_the_same_inventions_have_a_days_fields_too() -> None:
    bounds = FieldBounds()
    admitted = 0
    for at in range(20):
        source = (f"shared{at}", "site")
        for node in ("oss-1", "oss-2"):
            assert bounds.admits(source, dataclasses.replace(SCHEMA, node=node))
        for turn, node in enumerate(("evil-1", "evil-2", "evil-1")):
            made = dataclasses.replace(inventive(at, 1000), node=node, stream=bytes([turn]) * 16)
            admitted += 1000 * (bounds.admits(source, made) and len(bounds._sources[source].used) == 1002)
            if len(bounds._sources[source].used) == 1002:
                break
    assert 1000 <= admitted <= 2 * writer_module.MAX_NEW_FIELDS


def test_over_days_too_a_node_alone_has_half_of_a_table() -> None:
    bounds = FieldBounds()
    for day in range(5):
        for turn in range(day + 1):
            bounds.admits(SOURCE, inventive(turn, 512))
        bounds.new_day()
    assert len(bounds._sources[SOURCE].used) == writer_module.MAX_OWN_FIELDS
    assert bounds.admits(SOURCE, SCHEMA)


def test_a_day_later_fields_in_use_are_known_and_others_forgotten() -> None:
    bounds = FieldBounds()
    grown = schema_with(*SCHEMA.fields, Field("dc_ios"), epoch=2)
    for day in range(30):
        assert bounds.admits(SOURCE, grown if day < 10 else SCHEMA)
        assert bounds.admits(SOURCE, inventive(day, 256)), "a day's new ones"
        assert not bounds.admits(SOURCE, inventive(99, 1)), "and no more"
        known = {name for name, _ in bounds._sources[SOURCE].used}
        assert {"rd_ios", "rd_ms"} < known
        assert len(known) <= 2 * 256 + 3
        bounds.new_day()
    assert ("dc_ios", False) not in bounds._sources[SOURCE].used


def test_a_node_with_ever_new_streams_is_left_out_until_the_next_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stream has a schema of its own on disk, and its place among those of the day in memory."""
    monkeypatch.setattr(writer_module, "MAX_SCHEMAS", 30)
    writer = ArchiveWriter(tmp_path, "site", START_NS)
    evil = dataclasses.replace(SCHEMA, node="evil")
    for turn in range(50):
        writer.batch(of(SCHEMA, 2 * turn))
        writer.batch(of(dataclasses.replace(evil, stream=turn.to_bytes(16, "big")), 2 * turn + 1))
    assert writer.refused_rows == {"evil": 20 * 2}
    assert len(writer._schemas_written) == 31
    writer.batch(of(dataclasses.replace(evil, stream=b"n" * 16), 101, MIDNIGHT_NS + 3600 * SECOND))
    assert writer.refused_rows == {"evil": 20 * 2}


def test_parts_whose_union_is_too_wide_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As several restarts in a day leave them, each of which counts from the beginning."""
    monkeypatch.setattr(retention, "MAX_COLUMNS", len(schemas.COUNTERS) + 250)
    for turn in range(6):
        writer = ArchiveWriter(tmp_path, "site", START_NS + turn * SECOND)
        writer.batch(of(inventive(turn), 0, START_NS + turn * SECOND))
        writer.flush()
    retention.compact(tmp_path, MIDNIGHT_NS + 3600 * SECOND)
    assert len(files(tmp_path)) == 3
    assert len(read(tmp_path)) == 6
    retention.compact(tmp_path, MIDNIGHT_NS + 3600 * SECOND)
    assert len(files(tmp_path)) == 3
