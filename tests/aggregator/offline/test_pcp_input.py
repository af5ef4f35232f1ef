"""CSV of Performance Co-Pilot, as pmrep prints it (`tests/fixtures/pcp/README.md`)."""

import lzma
import re
from pathlib import Path
from zoneinfo import ZoneInfo

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
    (rows,) = read_pcp([path], columns, 5.0)
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
        read(tmp_path, "\n".join([header, *(f"{time},1.250,0.000" for time in times), ""]))
    header += ',"disk.dev.await-sda","disk.dev.await-sdb"'
    rows = read(tmp_path, "\n".join([header, *(f"{time},1.250,0.000,7.125,8.500" for time in times), ""]))
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
    with pytest.raises(InputError, match=r"it has disk\.dev\.read-$"):
        read(tmp_path, "Time,disk.dev.read-\n2027-01-15 08:00:00,1\n")


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
    (rows,) = read_pcp([shared(f"pcp_disk/{name}.csv.xz")], CsvColumns(), 60.0)
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
        list(read_pcp([path], CsvColumns(), 60.0))
    columns = CsvColumns(metrics=("disk.dev.avactive",))
    (rows,) = read_pcp([path], columns, 60.0)
    assert len(rows.components) == 6


def spelled(text: str, form: str) -> str:
    """The header in another of PCP's spellings, and the file with another separator."""
    units = {"read": "count", "write": "count", "read_rawactive": "millisec", "write_rawactive": "millisec"}
    header, _, rest = text.partition("\n")
    if form in ("brackets", "units", "quoted"):
        pattern = r'"disk\.dev\.(\w+)-(\w+)"'
        instance = {"quoted": '[""{}""]'}.get(form, "[{}]")
        header = re.sub(
            pattern,
            lambda match: (
                f'"disk.dev.{match[1]}{instance.format(match[2])}'
                + (f'({units[match[1]]})"' if form == "units" else '"')
            ),
            header,
        )
    elif form == "bare":
        header = header.replace('"', "")
    separator = {"semicolons": ";", "tabs": "\t", "bars": "|"}.get(form, ",")
    return f"{header}\n{rest}".replace(",", separator)


@pytest.mark.parametrize("form", ["brackets", "units", "quoted", "bare", "semicolons", "tabs", "bars"])
def test_each_spelling_says_the_same(tmp_path: Path, form: str) -> None:
    plain, other = read(tmp_path, HEADER + ROWS), read(tmp_path, spelled(HEADER + ROWS, form))
    assert other.components == plain.components
    for name, values in (*plain.metrics.items(), *plain.load.items()):
        assert np.array_equal({**other.metrics, **other.load}[name], values, equal_nan=True)
    lines = [f"oss-1,10,{line}" for line in ROWS.splitlines()]
    extended = "\n".join(["# x", f"Host,Interval,{spelled(HEADER, 'brackets').strip()}", *lines]) + "\n"
    assert read(tmp_path, extended).components == ("oss-1/sda", "oss-1/sdb")


def test_units_are_those_of_the_header(tmp_path: Path) -> None:
    names = 'Time,"disk.dev.read[a](count)","disk.dev.read_rawactive[a](sec)","disk.dev.write[a](count)"'
    names += ',"disk.dev.write_rawactive[a](microsec)","disk.dev.read_bytes[a](Mbyte)"'
    names += ',"disk.dev.write_bytes[a](byte)"\n'
    times = ("2027-01-15 08:00:00", "2027-01-15 08:00:10")
    rows = read(tmp_path, f"{names}{times[0]},0,0,0,0,0,0\n{times[1]},10,1,10,500000,3,1048576\n")
    assert rows.metrics["await"].tolist() == [(1000 + 500) / 20]
    assert rows.load["throughput"].tolist() == [4 * 2**20 / 10]


def test_rates_by_their_units_are_no_counters(tmp_path: Path) -> None:
    names = 'Time,"disk.dev.read[a](count / sec)","disk.dev.read_rawactive[a](none)"'
    times = ("2027-01-15 08:00:00", "2027-01-15 08:00:10")
    with pytest.raises(InputError, match=r"neither disk\.dev\.await nor counters"):
        read(tmp_path, "\n".join([names, *(f"{time},1,1" for time in times)]))


def test_blanks_between_columns_are_named(tmp_path: Path) -> None:
    text = (HEADER + ROWS).replace(",", " ")
    with pytest.raises(InputError, match=r"the header: separated by blanks, .* add -l , to the command"):
        read(tmp_path, text)


def test_impossible_values_are_left_out_and_told(tmp_path: Path) -> None:
    header = 'Time,"disk.dev.await[sda]","disk.dev.read[sda]"\n'
    values = ("7.5", "-3", "9223372036854775808", "8.5")
    lines = [f"2027-01-15 08:00:{at}0,{value},1.5" for at, value in enumerate(("1", *values))]
    path = tmp_path / "x.csv"
    path.write_text(header + "\n".join(lines) + "\n")
    remarks: list[str] = []
    (rows,) = read_pcp([path], DEFAULT, 10.0, remarks)
    assert np.isfinite(rows.metrics["await"]).tolist() == [True, False, False, True]
    assert [remark.partition(": ")[2] for remark in remarks] == [
        "disk.dev.await[sda]: 1 value below 0 not judged, the first in data row 3",
        "disk.dev.await[sda]: 1 value above 1e+18 not judged, the first in data row 4",
    ]


def test_a_file_that_ends_in_the_middle_of_a_row(tmp_path: Path) -> None:
    whole = read(tmp_path, HEADER + ROWS)
    path = tmp_path / "oss-1.csv"
    path.write_text(HEADER + ROWS + "2027-01-15 08:00:40,15,2")
    remarks: list[str] = []
    (rows,) = read_pcp([path], DEFAULT, 5.0, remarks)
    assert np.array_equal(rows.metrics["await"], whole.metrics["await"], equal_nan=True)
    ending = "ends in the middle of a row, or without a line feed: left out:"
    assert remarks == [f"{path}: {ending} '2027-01-15 08:00:40,15,2' (append one where it is whole)"]
    with pytest.raises(InputError, match=r"data row 2: Expected 9 columns, got 2"):
        read(tmp_path, HEADER + ROWS.replace("10,110,100,1020,1000,10,0,40,0\n", "10,110\n"))


def test_local_times_with_their_zone(tmp_path: Path) -> None:
    there = read(tmp_path, HEADER + ROWS, CsvColumns(zone=ZoneInfo("America/New_York")))
    plain = read(tmp_path, HEADER + ROWS)
    assert np.unique(there.time_ns - plain.time_ns).tolist() == [5 * 3600 * 10**9]


def test_an_empty_cell_of_discards_is_unknown_and_a_column_without_any_is_0(tmp_path: Path) -> None:
    names = ("read", "read_rawactive", "write", "write_rawactive", "discard", "discard_rawactive")
    header = "Time," + ",".join(f'"disk.dev.{name}[{disk}]"' for disk in "ab" for name in names)
    rows = [
        "2027-01-15 08:00:00,0,0,0,0,0,0,0,0,0,0,,",
        "2027-01-15 08:00:10,10,20,0,0,,,10,20,0,0,,",
        "2027-01-15 08:00:20,20,40,0,0,5,5,20,40,0,0,,",
    ]
    table = read(tmp_path, "\n".join([header, *rows]) + "\n")
    found = by_disk(table, table.metrics["await"])
    assert np.isnan(found["a"]).tolist() == [True, True]
    assert found["b"] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"  d.d.read  d.d.read\n       sda       sdb\n   count/s   count/s\n     1.0 2.0\n", "text of PCP"),
        (b'disk.dev.await ["sda"]  5.012 5.012 none\n', "text of PCP"),
        (
            b"\0\0\0\x84\x50\x05\x26\x02\0\0\x0f\xff",
            r"an archive of PCP: print it with pmrep -a .*/f -r -o csv",
        ),
    ],
)
def test_other_output_of_pcp_is_named(data: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    with pytest.raises(InputError, match=problem):
        kind_of([path])
