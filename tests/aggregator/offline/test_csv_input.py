"""CSV files as users have them: compressed, unsorted, with gaps and repeats, or not CSV at all."""

import gzip
import io
import lzma
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zstandard

from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.files.cut_rows import CutRow
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.csv_input import read_csv, stem
from laggard_aggregator.offline.regrid import Rows
from laggard_aggregator.offline.run import kind_of, read_grids
from laggard_common.errors import InputError

COLUMNS = CsvColumns(time="t", component="c", metrics=("m",))


def read(tmp_path: Path, content: str | bytes, columns: CsvColumns = COLUMNS) -> list[Rows]:
    path = tmp_path / "host_1.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_csv([path], columns))


def samples(rows: Rows) -> list[tuple[str, int, float]]:
    """Component, ns and the metric m of each row, ordered."""
    names = [rows.components[c] for c in rows.component]
    return sorted(zip(names, rows.time_ns.tolist(), rows.metrics["m"].tolist(), strict=True))


CONTENT = b"t,c,m\n10,sda,1.5\n20,sda,2\n10,sdb,3\n"


@pytest.mark.parametrize(
    "compress",
    [bytes, gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress],
    ids=["as it is", "gz", "xz", "zst"],
)
def test_compression_is_told_by_content(tmp_path: Path, compress: object) -> None:
    (rows,) = read(tmp_path, compress(CONTENT))  # type: ignore[operator]
    assert samples(rows) == [("sda", 10 * 10**9, 1.5), ("sda", 20 * 10**9, 2.0), ("sdb", 10 * 10**9, 3.0)]


@pytest.mark.parametrize(
    "compress", [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress], ids=["gz", "xz", "zst"]
)
def test_compressed_data_that_is_cut_short_is_read_as_far_as_it_goes(
    tmp_path: Path, compress: object
) -> None:
    chance = random.Random(1)
    content = "t,c,m\n" + "".join(f"{n},sda,{chance.random()}\n" for n in range(50_000))
    packed: bytes = compress(content.encode())  # type: ignore[operator]
    path = tmp_path / "host_1.csv"
    path.write_bytes(packed[: len(packed) // 2])
    remarks: list[str] = []
    (rows,) = read_csv([path], COLUMNS, remarks)
    assert 15_000 < len(samples(rows)) < 49_000
    assert f"{path}: compressed data is cut short: read as far as it goes" in remarks
    assert not [text for text in remarks if "row" in text]
    found = samples(rows)
    assert found == samples(read(tmp_path, content)[0])[: len(found)]


def test_damaged_compressed_data_says_so(tmp_path: Path) -> None:
    packed = bytearray(lzma.compress(CONTENT * 1000))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(InputError, match="damaged"):
        read(tmp_path, bytes(packed))


def test_zstd_frames_one_after_the_other_are_one_file(tmp_path: Path) -> None:
    packed = zstandard.ZstdCompressor().compress
    (rows,) = read(tmp_path, packed(CONTENT) + packed(b"30,sda,4\n"))
    assert len(samples(rows)) == 4


@pytest.mark.parametrize(
    "time",
    [
        *("1800000000", "1800000000.0", "1800000000000", "1800000000000000000"),
        *("2027-01-15T08:00:00", "2027-01-15 08:00:00", "2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00"),
    ],
)
def test_times_in_any_usual_form(tmp_path: Path, time: str) -> None:
    (rows,) = read(tmp_path, f"t,c,m\n{time},sda,1\n")
    assert rows.time_ns.tolist() == [1_800_000_000 * 10**9]


def test_fractions_of_seconds_are_kept(tmp_path: Path) -> None:
    (rows,) = read(tmp_path, "t,c,m\n1800000000.25,sda,1\n")
    assert rows.time_ns.tolist() == [1_800_000_000_250_000_000]


def test_groups_by_column_by_file_or_one(tmp_path: Path) -> None:
    content = "t,c,m,host\n1,sda,1,b\n1,sda,2,a\n2,sdb,3,a\n"
    assert [rows.group for rows in read(tmp_path, content)] == ["all"]
    by_column = read(tmp_path, content, CsvColumns("t", "c", ("m",), None, "host"))
    assert [(rows.group, rows.components) for rows in by_column] == [("a", ("sda", "sdb")), ("b", ("sda",))]
    assert [rows.metrics["m"].tolist() for rows in by_column] == [[2.0, 3.0], [1.0]]
    assert [rows.group for rows in read(tmp_path, content, CsvColumns("t", "c", ("m",), None, "file"))] == [
        "host_1"
    ]


def test_files_of_one_stem_are_one_group(tmp_path: Path) -> None:
    for day, name in ((1, "a.csv"), (2, "a.csv.gz"), (3, "b.csv")):
        folder = tmp_path / str(day)
        folder.mkdir()
        data = f"t,c,m\n{day},sda,1\n".encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    paths = sorted(tmp_path.glob("*/*"))
    found = list(read_csv(paths, CsvColumns("t", "c", ("m",), None, "file")))
    assert [(rows.group, rows.time_ns.size) for rows in found] == [("a", 2), ("b", 1)]
    assert stem(Path("x/cluster_A__host_1.csv.xz")) == "cluster_A__host_1"


def test_empty_numbers_are_missing_and_empty_names_an_error(tmp_path: Path) -> None:
    (rows,) = read(tmp_path, "t,c,m\n1,sda,\n2,sda,nan\n")
    assert np.isnan(rows.metrics["m"]).all()
    with pytest.raises(InputError, match="column 'c': empty in data row 2"):
        read(tmp_path, "t,c,m\n1,sda,1\n2,,1\n")
    with pytest.raises(InputError, match="time column: empty in data row 1"):
        read(tmp_path, "t,c,m\n,sda,1\n")


def test_a_load_of_a_known_kind_keeps_its_name(tmp_path: Path) -> None:
    content = "t,c,m,operations,bytes\n1,sda,1,5,6\n"
    (rows,) = read(tmp_path, content, CsvColumns("t", "c", ("m",), "operations"))
    assert (list(rows.load), rows.weight) == (["operations"], "operations")
    (rows,) = read(tmp_path, content, CsvColumns("t", "c", ("m",), "bytes"))
    assert (list(rows.load), rows.weight) == (["throughput"], "throughput")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Empty CSV file"),
        (b"\n\n", "CSV"),
        (b"t,c,m\n", "no rows below the header"),
        (b"t,c\n1,sda\n", "no column 'm', it has t, c"),
        (b"t,c,m,m\n1,sda,1,2\n", "more than one column 'm'"),
        (b"t,c,m\n1,sda,1\n2,sda,fast\n", "column 3: data row 2: invalid value 'fast'"),
        (b"t,c,m\n1,sda,1\n1,sda\n", "data row 2: Expected 3 columns, got 2"),
        (b"t,c,m\nsoon,sda,1\n", "data row 1: expected epoch seconds or ISO 8601, got 'soon'"),
        (b"t,c,m\n1,sda,1\ninf,sda,1\n", "data row 2: expected epoch seconds or ISO 8601, got 'inf'"),
        (b"t\tc\tm\n1\tsda\t1\n", "row 1, the header: separated by tabs, expected commas"),
        (b"t;c;m\n1;sda;1\n", "row 1, the header: separated by semicolons, expected commas"),
        (b"t;c;m\n1;sda;1,5\n", "row 1, the header: separated by semicolons, expected commas"),
        (
            b"t,c,m\n2027-01-15T08:00:00Z,sda,1\n2027-01-15T08:00:15,sda,1\n",
            "data row 2: '2027-01-15T08:00:15' is a time without a zone, the rows before have a time with a",
        ),
        (
            b"t,c,m\n2027-01-15T08:00:00,sda,1\n2027-01-15T08:00:15+01:00,sda,1\n",
            r"data row 2: '2027-01-15T08:00:15\+01:00' is a time with a zone, the rows before have a time wi",
        ),
        (
            b"t,c,m\n1800000000,sda,1\n2027-01-15T08:00:15Z,sda,1\n",
            "data row 2: '2027-01-15T08:00:15Z' is a time with a zone, the rows before have a number",
        ),
        (
            b"t,c,m\n2027-01-15T08:00:15Z,sda,1\n1800000000,sda,1\n",
            "data row 2: '1800000000' is a number, the rows before have a time with a zone",
        ),
        (
            b"t,c,m\n1800000000,sda,1\n1800000015000,sda,1\n",
            "data row 2: '1800000015000' is not in s, as the rows before are",
        ),
        (b"t,c,m\n1,\xff\xfe,1\n", "invalid UTF8"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(str(tmp_path / "host_1.csv"))
    assert len(str(caught.value).splitlines()) == 1


def test_another_form_of_time_in_a_later_block_is_an_error_too(tmp_path: Path) -> None:
    lines = [f"2027-01-15T08:00:00Z,sda,{n}\n" for n in range(100_000)]
    with pytest.raises(InputError, match="data row 100001: '2027-01-15T08:00:00' is a time without a zone"):
        read(tmp_path, "t,c,m\n" + "".join(lines) + "2027-01-15T08:00:00,sda,1\n")


def remarks_on(tmp_path: Path, content: str) -> tuple[Rows, list[str]]:
    path = tmp_path / "a.csv"
    path.write_text(content)
    remarks: list[str] = []
    (rows,) = read_csv([path], COLUMNS, remarks)
    return rows, [remark.removeprefix(f"{path}: ") for remark in remarks]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1800000015,sda,-1", "m: 1 value below 0 not judged, the first in data row 2"),
        ("1800000015,sda,1e308", "m: 1 value above 1e+18 not judged, the first in data row 2"),
        ("1800000015,sda,inf", "m: 1 value above 1e+18 not judged, the first in data row 2"),
        (
            "-1800000015,sda,1",
            "1 row not judged, with a time before 1970 or after 2261, the first in data row 2",
        ),
        (
            "50000000000,sda,1",
            "1 row not judged, with a time before 1970 or after 2261, the first in data row 2",
        ),
    ],
)
def test_values_that_cannot_be_are_said_and_not_judged(tmp_path: Path, line: str, said: str) -> None:
    rows, remarks = remarks_on(tmp_path, f"t,c,m\n1800000000,sda,1\n{line}\n1800000030,sda,2\n")
    assert remarks == [said]
    known = np.isfinite(rows.metrics["m"])
    assert rows.metrics["m"][known].tolist() == [1.0, 2.0]
    assert (rows.time_ns[known] // 10**9).tolist() == [1_800_000_000, 1_800_000_030]


def test_unlikely_epochs_are_said(tmp_path: Path) -> None:
    assert remarks_on(tmp_path, "t,c,m\n1800000000000,sda,1\n")[1] == ["times are read as ms since the epoch"]
    assert remarks_on(tmp_path, "t,c,m\n60,sda,1\n")[1] == [
        "times begin at 1970-01-01 00:01:00 UTC: are they seconds since the epoch?"
    ]
    assert remarks_on(tmp_path, "t,c,m\n1800000000,sda,1\n")[1] == []


def test_progress_is_that_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(("t,c,m\n" + "1800000000,sda,1\n" * 500_000).encode(), 1))
    seen: list[float] = []
    read_grids([path, path], COLUMNS, DetectSettings(), progress=lambda _, share: seen.append(share))
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert seen[-1] == 1.0


def test_kinds_are_told_by_content(tmp_path: Path) -> None:
    csv, binary, sysstat = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    csv.write_bytes(CONTENT)
    binary.write_bytes(b"\x7fELF\x02\x01\x00\x00")
    sysstat.write_bytes(lzma.compress(b"\x96\xd5\x75\x21" + bytes(100)))
    assert kind_of([csv]) == "csv"
    assert kind_of([sysstat]) == "sysstat"
    with pytest.raises(InputError, match="b: a binary file"):
        kind_of([binary])
    with pytest.raises(InputError, match="sysstat input among csv input"):
        kind_of([csv, sysstat])
    with pytest.raises(InputError, match="is a directory and not a Laggard archive"):
        kind_of([tmp_path])
    with pytest.raises(InputError, match="no such file"):
        kind_of([tmp_path / "missing"])


@pytest.mark.parametrize(
    "data", [b"t\xff,c,m\n1,sda,1\n", b"t,c,m\n1,sd\xe9,1\n", b"t,c,m\n1,sda,1\n2,sd\xff", b"\xd3\n"]
)
def test_other_bytes_than_utf8_are_one_line(
    data: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match="invalid UTF8 near byte"):
        list(read_csv([path], CsvColumns("t", "c", ("m",))))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kept", range(1, 12))
@pytest.mark.parametrize("block", [1, 2, 5, 1 << 20])
def test_a_file_that_ends_in_the_middle_of_a_character(
    kept: int, block: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "gr\u00f6\u20ac\U0001f4be"
    whole = f"t,c,m\n1800000010,{name},1\n1800000020,{name},2\n".encode()
    path = tmp_path / "x.csv"
    path.write_bytes(whole + f"1800000030,{name}".encode()[: 11 + kept])
    text = CutRow(path, io.BytesIO(path.read_bytes())).file
    data = b"".join(iter(partial(text.read, block), b""))
    assert data.decode() == whole.decode()
    remarks: list[str] = []
    (rows,) = read_csv([path], COLUMNS, remarks=remarks)
    assert [at for _, at, _ in samples(rows)] == [1_800_000_010 * 10**9, 1_800_000_020 * 10**9]
    assert len(remarks) == 1
    assert "ends in the middle of a row" in remarks[0]
    assert capfd.readouterr().err == ""
