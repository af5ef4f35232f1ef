"""Days that are kept in memory have the loads of the minutes, whatever files they come from."""

import secrets
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from laggard_aggregator.archive import layout
from laggard_aggregator.jobs.loads.component_load import component_load
from laggard_aggregator.jobs.loads.heat_map import LoadMap, heat_map
from laggard_aggregator.jobs.loads.kinds import COMPUTE, KINDS
from laggard_aggregator.jobs.loads.load_days import LoadDays
from laggard_aggregator.jobs.rollups.series60 import KIND, LEADING, PassStoppedError

DAY = 1_800_057_600
"""2027-01-16."""
SECOND = 10**9
SOURCES = {COMPUTE: "lustre_llite", "osts": "lustre_ost"}
FIELDS = {
    COMPUTE: ("read_bytes_sum", "write_bytes_sum", "read_bytes_samples", "read_sum"),
    "osts": ("read_bytes_sum", "read_samples", "read_sum"),
}


def write(
    archive: Path, of: str, numbers: tuple[int, int], minutes: range, chance: np.random.Generator
) -> pa.Table:
    """A file of a day; some minutes of some components are missing."""
    components = [(f"cn{at}", "fs") for at in range(5)]
    if of == "osts":  # OST0 is on two servers, as one took it over
        components = [("oss1", "fs-OST0000"), ("oss2", "fs-OST0000"), ("oss2", "fs-OST0001")]
    rows = [(*each, minute) for each in components for minute in minutes if chance.random() < 0.8]
    node, name, minute = zip(*rows, strict=True)
    schema = pa.schema([*LEADING, *(pa.field(field, pa.int64()) for field in FIELDS[of])])
    columns = [pa.array(each).dictionary_encode() for each in (node, name, name)]
    columns += [pa.array([(DAY + 60 * at) * SECOND for at in minute]).cast(LEADING.field("minute").type)]
    columns += [pa.array([12] * len(rows), pa.uint16()), pa.array([60.0] * len(rows), pa.float32())]
    columns += [pa.array(chance.integers(0, 10**9, len(rows))) for _ in FIELDS[of]]
    table = pa.table(columns, schema=schema)
    add(archive, of, numbers, table)
    return table


def add(archive: Path, of: str, numbers: tuple[int, int], table: pa.Table) -> Path:
    where = layout.folder(archive, KIND, SOURCES[of], "2027-01-16", "site")
    return layout.write_part(where, layout.stamp(DAY * SECOND), numbers, table.schema, [table])


def both(archive: Path, of: str, days: LoadDays) -> tuple[LoadMap, LoadMap]:
    """Two hours by the kept days, and by the minute."""
    kind, span = KINDS[of], (DAY + 3600.0, DAY + 3 * 3600.0)
    names = {(f"cn{at}", "") for at in range(6)}
    if of == "osts":
        names = {("oss1", "fs-OST0000"), ("oss2", "fs-OST0000"), ("oss2", "fs-OST0001")}
    return days.load(kind, names, *span), heat_map(archive, kind, names, *span, step_minutes=15)


def check(archive: Path, of: str, days: LoadDays) -> None:
    kept, read = both(archive, of, days)
    assert (kept.components, kept.start, kept.step_seconds) == (
        read.components,
        read.start,
        read.step_seconds,
    )
    assert np.isfinite(kept.rates).any()
    for name in ("rates", "latency", "in_flight"):
        np.testing.assert_allclose(getattr(kept, name), getattr(read, name), rtol=1e-5)


@pytest.mark.parametrize("of", SOURCES)
def test_kept_days_have_the_loads_of_the_minutes(tmp_path: Path, of: str) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance, days = np.random.default_rng(seed), LoadDays(tmp_path)
    first = write(tmp_path, of, (1, 1), range(100), chance)
    check(tmp_path, of, days)
    second = write(tmp_path, of, (2, 2), range(90, 200), chance)  # later readings of ten minutes
    check(tmp_path, of, days)
    third = write(tmp_path, of, (3, 3), range(200, 240), chance)
    add(tmp_path, of, (1, 3), pa.concat_tables([first, second, third]).unify_dictionaries())
    check(tmp_path, of, days)


def test_the_pass_reads_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, days, now_ns = np.random.default_rng(1), LoadDays(tmp_path), (DAY + 12 * 3600) * SECOND
    write(tmp_path, COMPUTE, (1, 1), range(100), chance)
    with pytest.raises(PassStoppedError):
        days.refresh(now_ns, lambda: False)
    days.refresh(now_ns, lambda: True)
    with monkeypatch.context() as context:
        context.setattr("laggard_aggregator.jobs.loads.load_days.load_sums", None)
        check_kept, _ = both(tmp_path, COMPUTE, days)
    assert np.isfinite(check_kept.rates).any()
    check(tmp_path, COMPUTE, days)


def test_many_components_are_shown_by_quarters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, COMPUTE, (1, 1), range(100), np.random.default_rng(1))
    up, span = [f"cn{at}" for at in range(5)], (DAY + 0.0, DAY + 7200.0)
    days = LoadDays(tmp_path)

    def steps() -> float:
        loads = component_load(tmp_path, KINDS[COMPUTE], *span, up=up, days=days)
        return loads.heat.step_seconds

    assert steps() == 60.0
    monkeypatch.setattr("laggard_aggregator.jobs.loads.component_load.MOST_CELLS", 500)
    assert steps() == 900.0
    monkeypatch.setattr("laggard_aggregator.jobs.loads.load_days.MOST_CELLS", 20)
    assert steps() == 1800.0


def test_old_days_leave_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.jobs.loads.load_days.MOST_BYTES", 1)
    for of in SOURCES:
        write(tmp_path, of, (1, 1), range(100), np.random.default_rng(1))
    days = LoadDays(tmp_path)
    for of in (*SOURCES, *SOURCES):
        check(tmp_path, of, days)
