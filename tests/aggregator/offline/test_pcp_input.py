"""CSV of Performance Co-Pilot, as pmrep prints it (`tests/fixtures/pcp/README.md`)."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.pcp_input import read_pcp
from laggard_aggregator.offline.regrid import Rows
from laggard_aggregator.offline.run import kind_of, open_run
from laggard_common.errors import InputError
from tests.support.shared_data import shared

LUNS = Path(__file__).parents[2] / "fixtures" / "pcp" / "luns.csv.xz"
HEADER = (
    'Time,"disk.dev.read-sda","disk.dev.read-sdb","disk.dev.read_rawactive-sda",'
    '"disk.dev.read_rawactive-sdb","disk.dev.write-sda","disk.dev.write-sdb",'
    '"disk.dev.write_rawactive-sda","disk.dev.write_rawactive-sdb"\n'
)
ROWS = (
    "2027-01-15 08:00:00,100,100,1000,1000,0,0,0,0\n"
    "2027-01-15 08:00:10,110,100,1020,1000,10,0,40,0\n"
    "2027-01-15 08:00:20,5,100,1,1000,12,1,44,3\n"
    "2027-01-15 08:00:30,15,,21,,12,1,44,3\n"
)
DEFAULT = CsvColumns()
START_NS = 1_800_000_000 * 10**9


def read(tmp_path: Path, text: str, columns: CsvColumns = DEFAULT) -> Rows:
    path = tmp_path / "oss-1.csv"
    path.write_text(text)
    assert kind_of([path]) == "pcp"
    (rows,) = read_pcp([path], columns, 5.0, lambda _: None)
    return rows


def by_disk(rows: Rows, values: np.ndarray) -> dict[str, list[float]]:
    return {name: values[rows.component == at].tolist() for at, name in enumerate(rows.components)}


def test_counters_become_await_and_load(tmp_path: Path) -> None:
    rows = read(tmp_path, HEADER + ROWS)
    found = by_disk(rows, rows.metrics["await"])
    assert found["sda"][0] == (20 + 40) / 20
    assert np.isnan(found["sda"][1]), "a counter fell: the host has started again"
    assert found["sda"][2] == 2.0
    assert found["sdb"][:2] == [0.0, 3.0]
    assert np.isnan(found["sdb"][2]), "it is gone"
    operations = by_disk(rows, rows.load["operations"])
    assert operations["sda"][0] == 10.0, "20 in ten seconds"
    assert rows.weight == "operations"
    assert by_disk(rows, rows.time_ns)["sda"] == [START_NS + s * 10**9 for s in (5, 15, 25)]


@pytest.mark.parametrize(
    ("zone", "hours"), [("UTC+0", 0.0), ("UTC+2", 2.0), ("UTC-11", -11.0), ("UTC+5:30", 5.5)]
)
def test_extended_csv_names_host_and_zone(tmp_path: Path, zone: str, hours: float) -> None:
    lines = [f"oss-1,10,{line.replace(',', f' {zone},', 1)}" for line in ROWS.splitlines()]
    text = "\n".join(["#", "#  archive: a,b", "#", f"Host,Interval,{HEADER.strip()}", *lines]) + "\n"
    rows = read(tmp_path, text)
    plain = read(tmp_path, HEADER + ROWS)
    assert rows.components == ("oss-1/sda", "oss-1/sdb")
    assert np.unique(plain.time_ns - rows.time_ns).tolist() == [hours * 3600 * 10**9]
    assert np.array_equal(rows.metrics["await"], plain.metrics["await"], equal_nan=True)


def test_rates_come_with_pcps_own_await(tmp_path: Path) -> None:
    header = 'Time,"disk.dev.read-sda","disk.dev.read-sdb"'
    times = ("2027-01-15 08:00:00", "2027-01-15 08:00:10", "2027-01-15 08:00:20")
    with pytest.raises(InputError, match=r"neither disk\.dev\.await nor counters as pmrep -r prints them"):
        read(tmp_path, "\n".join([header, *(f"{time},1.250,0.000" for time in times)]))
    header += ',"disk.dev.await-sda","disk.dev.await-sdb"'
    rows = read(tmp_path, "\n".join([header, *(f"{time},1.250,0.000,7.125,8.500" for time in times)]))
    assert by_disk(rows, rows.metrics["await"]) == {"sda": [7.125] * 2, "sdb": [8.5] * 2}


def test_any_column_of_an_instance_can_be_named(tmp_path: Path) -> None:
    columns = CsvColumns(metrics=("nfs4.x.latency",), load="nfs4.x.ops")
    text = (
        'Time,"nfs4.x.latency-a-1:/home","nfs4.x.ops-a-1:/home","kernel.all.load-1 minute"\n'
        "2027-01-15 08:00:00,1.5,10,0.1\n2027-01-15 08:00:10,2.5,20,0.1\n"
    )
    rows = read(tmp_path, text, columns)
    assert rows.components == ("a-1:/home",)
    assert rows.metrics["nfs4.x.latency"].tolist() == [2.5]
    assert rows.load["throughput"].tolist() == [20.0]
    with pytest.raises(
        InputError, match=r"no column disk\.dev\.\* of a disk, it has kernel\.all\.load, nfs4"
    ):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEADER, "no rows below the header"),
        (HEADER + ROWS.replace(",110,", ",many,"), "column 2: data row 2: invalid value 'many'"),
        (HEADER + ROWS.replace("2027-01-15 08:00:10", "later"), "time column: data row 2: expected epoch"),
        (HEADER + ROWS + HEADER, "invalid value"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        read(tmp_path, text)
    assert len(str(caught.value).splitlines()) == 1


def stragglers(paths: list[Path], columns: CsvColumns = DEFAULT) -> tuple[set[str], set[str]]:
    """The components of a run over ten seconds' intervals, and those that got an alarm."""
    settings = {"interval_seconds": 10.0, "window_samples": 10, "shift_samples": 5}
    known, alarms = set[str](), set[str]()
    for judged in open_run(paths, columns, settings).judgements:
        known.update(judged.components)
        alarms.update(each.alarm.component for each in judged.transitions)
    return known, alarms


def test_the_slow_lun_is_found() -> None:
    known, alarms = stragglers([LUNS])
    assert len(known) == 12
    assert alarms == {"loop27"}


def test_disks_of_several_files_are_peers(tmp_path: Path) -> None:
    text = lzma.decompress(LUNS.read_bytes()).decode()
    for name in ("oss-1", "oss-2"):
        (tmp_path / f"{name}.csv").write_text(text)
    known, alarms = stragglers(sorted(tmp_path.iterdir()))
    assert len(known) == 24
    assert alarms == {"oss-1/loop27", "oss-2/loop27"}
    assert stragglers(sorted(tmp_path.iterdir()), CsvColumns(group_by="file"))[1] == {"loop27"}


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "metric", "disks", "samples"),
    [
        ("20101004-trunc", "svctm", 24, 11),
        ("bozo-20170904-b", "await", 5, 10),
    ],
)
def test_exports_of_pcps_own_archives(name: str, metric: str, disks: int, samples: int) -> None:
    (rows,) = read_pcp([shared(f"pcp_disk/{name}.csv.xz")], CsvColumns(), 60.0, lambda _: None)
    assert list(rows.metrics) == [metric]
    assert len(rows.components) == disks
    assert rows.time_ns.size == disks * samples
    values = rows.metrics[metric][np.isfinite(rows.metrics[metric])]
    assert 0 <= values.min() < values.max() < 60_000
    assert values.size > 30


@pytest.mark.shared_data
def test_an_export_without_times_beside_operations() -> None:
    """Its archive has `avactive` only while it has no `read` and `write`."""
    path = shared("pcp_disk/20130706-a.csv.xz")
    with pytest.raises(InputError, match=r"neither disk\.dev\.await nor counters"):
        list(read_pcp([path], CsvColumns(), 60.0, lambda _: None))
    columns = CsvColumns(metrics=("disk.dev.avactive",))
    (rows,) = read_pcp([path], columns, 60.0, lambda _: None)
    assert len(rows.components) == 6
