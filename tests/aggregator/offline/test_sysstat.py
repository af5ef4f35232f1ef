"""sysstat's disk statistics in each form: the same samples give the same rows."""

import lzma
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laggard_aggregator.cli.main import main
from laggard_aggregator.offline.run import kind_of
from laggard_aggregator.offline.sysstat.disk_sample import (
    DiskSample,
    NotMeasuredError,
    is_partition,
    measured,
)
from laggard_aggregator.offline.sysstat.reader import read_sysstat
from laggard_common.errors import InputError
from tests.support.builders import sysstat as forms
from tests.support.builders.sysstat import START, Line
from tests.support.processes import run_command

UTC = ZoneInfo("UTC")
Form = Callable[[list[Line]], str]

FORMS: dict[str, Form] = {
    "sadf -j": forms.sadf_json,
    "sadf -x": forms.sadf_x,
    "sadf -d": forms.sadf_d,
    "sadf -d after a boot": lambda lines: (
        "oss1;-1;2026-05-01 00:00:00 UTC;LINUX-RESTART\t(8 CPU)\n" + forms.sadf_d(lines)
    ),
    "sadf -dh": forms.sadf_dh,
    "sadf -dT": lambda lines: forms.sadf_d(lines, zone=""),
    "sadf -jT": lambda lines: forms.sadf_json(lines, tz="CEST"),
    "sadf -jT, old": lambda lines: forms.sadf_json(lines, utc=0),
    "sar -d": forms.sar_d,
    "sar -dp": lambda lines: forms.sar_d(lines, last=True),
    "sar -d, 12 hours": lambda lines: forms.sar_d(lines, clock="%I:%M:%S %p", date="%m/%d/%y"),
    "sar -d, German": lambda lines: forms.sar_d(
        lines, date="%d.%m.%Y", number=lambda value: f"{value:.2f}".replace(".", ",")
    ),
    "iostat -x": forms.iostat_x,
    "iostat -x, C": lambda lines: forms.iostat_x(lines, time="%m/%d/%y %H:%M:%S"),
    "iostat -x, US": lambda lines: forms.iostat_x(lines, time="%m/%d/%Y %I:%M:%S %p"),
    "iostat -x, old": lambda lines: forms.iostat_x(lines, time="Time: %H:%M:%S"),
    "iostat -o JSON": forms.iostat_json,
}
LOCAL = [name for name in FORMS if "T" in name.partition(" ")[2] or name.startswith(("sar", "iostat -x,"))]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    assert kind_of([path]) == "sysstat"
    return path


def rows(path: Path, zone: ZoneInfo | None = UTC, remarks: list[str] | None = None) -> dict[str, np.ndarray]:
    """By component, in order of time: time in s, await, operations, throughput and share of reads."""
    (found,) = read_sysstat([path], 60.0, zone=zone, remarks=remarks)
    table = np.column_stack(
        [
            found.time_ns / 1e9,
            found.metrics["await"],
            *(found.load[name] for name in ("operations", "throughput", "read_share")),
        ]
    )
    by_name = {name: table[found.component == at] for at, name in enumerate(found.components)}
    return {name: own[np.argsort(own[:, 0])] for name, own in by_name.items()}


def expected(lines: list[Line], interval: int = 60) -> dict[str, np.ndarray]:
    found: dict[str, list[list[float]]] = {}
    for line in lines:
        moved = line.read_kb + line.written_kb
        share = line.read_kb / moved if moved else float("nan")
        own = [line.end - interval / 2, line.await_ms, line.tps * 60, moved * 1024, share]
        found.setdefault(f"oss1/{line.device}", []).append(own)
    return {name: np.array(own) for name, own in found.items()}


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, own in wanted.items():
        np.testing.assert_allclose(found[name], own, rtol=1e-6, atol=0.006, err_msg=name)


AMOUNT = st.integers(0, 10**6).map(lambda hundredths: hundredths / 100)
REQUESTS = st.integers(1, 10**6).map(lambda hundredths: hundredths / 100)


@st.composite
def samples(draw: st.DrawFn) -> list[Line]:
    devices = draw(
        st.lists(st.sampled_from(["sda", "sdb", "nvme0n1", "dm-3", "dev8-0"]), min_size=1, unique=True)
    )
    first = draw(st.integers(1, 1500))  # over midnight, too
    count = draw(st.integers(1, 4))
    return [
        Line(
            START + 60 * (first + at),
            device,
            draw(REQUESTS),
            draw(AMOUNT),
            draw(AMOUNT),
            draw(AMOUNT),
            draw(st.integers(1, 10**5)) / 100,
        )
        for at in range(count)
        for device in devices
    ]


@pytest.mark.parametrize("form", FORMS)
@given(lines=samples())
def test_each_form_says_the_same(
    form: str, lines: list[Line], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.mktemp("form") / "file", FORMS[form](lines))
    assert_same(rows(path), expected(lines))


@pytest.mark.parametrize("form", FORMS)
@given(lines=samples(), share=st.floats(0, 1))
@example(lines=forms.steady(["sda", "nvme0n1"], 1, {}), share=0.69)  # within the name of the last device
def test_a_file_that_is_cut_is_read_as_far_as_it_goes(
    form: str, lines: list[Line], share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = FORMS[form](lines)
    path = tmp_path_factory.mktemp("cut") / "file"
    path.write_text(text[: int(len(text) * share)])
    if kind_of([path]) != "sysstat":
        return
    remarks: list[str] = []
    try:
        found = rows(path, remarks=remarks)
    except InputError:
        return
    wanted = expected(lines)
    for name, own in found.items():
        whole = {tuple(row[:1]): row for row in wanted[name]}
        for row in own[:-1]:  # the last number of a text may have lost digits
            np.testing.assert_allclose(row, whole[tuple(row[:1])], rtol=1e-6, atol=0.006)


@pytest.mark.parametrize("form", LOCAL)
def test_local_times_are_refused_or_converted(form: str, tmp_path: Path) -> None:
    lines = forms.steady(["sda"], 3, {})
    path = write(tmp_path / "file", FORMS[form](lines))
    with pytest.raises(InputError, match=r"is no UTC .*--timezone Europe/Berlin"):
        rows(path, zone=None)
    times = rows(path, zone=ZoneInfo("Europe/Berlin"))["oss1/sda"][:, 0]
    assert (times - expected(lines)["oss1/sda"][:, 0]).tolist() == [-7200.0] * 3


def test_the_hour_that_comes_twice_keeps_its_order(tmp_path: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    ends = [1_793_489_400 + 600 * at for at in range(18)]  # 2026-11-01... over the end of summer time
    ends = [end - 7 * 86_400 for end in ends]
    local = [Line(end + (7200 if end < 1_792_890_000 else 3600), "sda", 1, 1, 1, 1, 5.0) for end in ends]
    path = write(tmp_path / "file", forms.sadf_d(local, 600, zone=""))
    times = rows(path, zone=berlin)["oss1/sda"][:, 0]
    assert times.tolist() == [end - 300 for end in ends]


@pytest.mark.parametrize(
    ("form", "first", "interval", "told"),
    [
        ("%d/%m/%y", "2026-05-31", 60, False),  # no month 31
        ("%d/%m/%Y", "2026-06-08", 43_200, False),  # two days, or a month apart
        ("%m/%d/%Y", "2026-06-08", 43_200, False),
        ("%m/%d/%y", "2026-05-01", 60, True),
    ],
)
def test_days_and_months_are_told_apart_by_all_dates_of_a_file(
    form: str, first: str, interval: int, told: bool, tmp_path: Path
) -> None:
    begin = int(datetime.fromisoformat(first).replace(tzinfo=UTC).timestamp())
    lines = [Line(begin + interval * (at + 1), "sda", 1, 1, 1, 1, 5.0) for at in range(3)]
    text = forms.iostat_x(lines, interval, time=f"{form} %H:%M:%S")
    remarks: list[str] = []
    times = rows(write(tmp_path / "file", text), remarks=remarks)["oss1/sda"][:, 0]
    assert times.tolist() == [line.end - interval / 2 for line in lines]
    assert any("is read as month/day/year" in line for line in remarks) is told


@pytest.mark.parametrize("form", FORMS)
@given(
    requests=st.floats(0.1, 500).map(lambda rate: round(rate, 2)),
    count=st.integers(1, 6),
    timed=st.sampled_from(["none", "one", "all"]),
)
def test_a_device_whose_requests_have_no_times_is_named_and_not_judged(
    tmp_path_factory: pytest.TempPathFactory, form: str, requests: float, count: int, timed: str
) -> None:
    """As md before Linux 5.14; few requests, or one with a time, are those of an idle or a fast disk."""
    lines = []
    for at, line in enumerate(forms.steady(["md0", "sda"], count, {})):
        took = timed == "all" or (timed == "one" and at == 0)
        own = replace(line, reads=requests, writes=0.0, await_ms=line.await_ms if took else 0.0)
        lines.append(own if line.device == "md0" else line)
    path = write(tmp_path_factory.mktemp("untimed") / "file", FORMS[form](lines))
    remarks: list[str] = []
    (rows,) = read_sysstat([path], 60.0, zone=UTC, remarks=remarks)
    is_untimed = timed == "none" and 60 * requests * count >= 1000
    assert list(rows.components) == (["oss1/sda"] if is_untimed else ["oss1/md0", "oss1/sda"])
    named = [line for line in remarks if "md0" in line]
    assert len(named) == is_untimed, remarks


def test_the_first_report_of_iostat_is_left_out(tmp_path: Path) -> None:
    remarks: list[str] = []
    path = write(tmp_path / "file", forms.iostat_x(forms.steady(["sda"], 2, {})))
    assert len(rows(path, remarks=remarks)["oss1/sda"]) == 2
    assert remarks == [f"{path}: the first report of iostat is of the time since the boot: left out"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "Linux 6.1.0 (a) \t05/01/26 \t_x86_64_\t(8 CPU)\n\nDevice tps\nsda 1.0\n",
            "without times: iostat -dxt",
        ),
        (
            "Linux 6.1.0 (a) \t2026-05-01 \t_x86_64_\n\n2026-05-01T00:01:00Z\nDevice tps\nsda 1.0\n",
            "without await: iostat -dxt",
        ),
        ("oss1\t60\t2026-05-01 00:01:00 UTC\tsda\ttps\t20.54\n", "pairs of sadf -p: sadf -d"),
        ('<?xml version="1.0"?><!DOCTYPE s [<!ENTITY a "b">]><sysstat>&a;</sysstat>', "declares entities"),
        ("00:00:01   DEV   tps  await\n00:01:01   sda  1  5\n", "no line such as 'Linux 6.1.0"),
        (
            '{"sysstat": {"hosts": [{"nodename": "a", "statistics": [{"disk": [{"disk_device": "sda"}]}]}]}}',
            "times",
        ),
        ('{"sysstat": {"hosts": 5}}', 'no list "hosts" in "sysstat"'),
        (
            '{"sysstat": {"hosts": [{"statistics": [{"timestamp": {"date": 5}, "disk": [{}]}]}]}}',
            "not a time",
        ),
        ('{"sysstat": {"hosts": [{"statistics": [{"timestamp": 7, "disk": null}]}]}}', "no disk statistics"),
        (
            '{"sysstat": {"hosts": [{"statistics": [{"disk": [{"disk-device": "sda", "await": 0,57}]}]}]}}',
            r"decimal commas \(0,57\): print it with LC_ALL=C sadf -j",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        rows(write(tmp_path / "file", text))
    assert str(caught.value).startswith(f"{tmp_path}/file: ")


def test_samples_without_a_column_are_left_out_and_told(tmp_path: Path) -> None:
    lines = forms.steady(["sda", "sdb"], 5, {})
    text = forms.sadf_json(lines).replace('"await": 5.2,', "", 1).replace('"await": 5.3', '"await": null', 1)
    remarks: list[str] = []
    path = write(tmp_path / "sa.json", text)
    assert {name: len(own) for name, own in rows(path, remarks=remarks).items()} == {
        "oss1/sda": 3,
        "oss1/sdb": 5,
    }
    (remark,) = remarks
    assert remark.startswith(f"{path}: 2 samples not judged, the first: sda: no await, ")


@pytest.mark.parametrize(
    "damage",
    [
        (r"\},(\s*\{)", r"}\1"),
        (r"\}(\s*\])", r"},\1"),
        (r'"areq-sz": 32.0', '"areq-sz": -nan'),
        (r'"areq-sz": 32.0', '"areq-sz": inf'),
    ],
)
def test_json_that_is_slightly_wrong(tmp_path: Path, damage: tuple[str, str]) -> None:
    lines = forms.steady(["sda", "sdb"], 3, {})
    text, count = re.subn(*damage, forms.sadf_json(lines))
    assert count > 1
    assert_same(rows(write(tmp_path / "sa.json", text)), expected(lines))


def test_documents_put_together_are_all_read(tmp_path: Path) -> None:
    first, second = forms.steady(["sda"], 3, {}), forms.steady(["sdb"], 3, {})
    text = forms.sadf_json(first) + "\n" + forms.sadf_json(second)
    remarks: list[str] = []
    assert_same(rows(write(tmp_path / "sa.json", text), remarks=remarks), expected([*first, *second]))
    assert remarks == []
    for form in (forms.sadf_x, forms.sadf_d, forms.sar_d, forms.iostat_x):
        assert_same(rows(write(tmp_path / "text", form(first) + form(second))), expected([*first, *second]))


def test_xz_of_each_form(tmp_path: Path) -> None:
    lines = forms.steady(["sda"], 3, {})
    for name, form in FORMS.items():
        path = tmp_path / f"{name}.xz"
        path.write_bytes(lzma.compress(form(lines).encode()))
        assert_same(rows(path), expected(lines))


# -- values that cannot be


def sample(seconds: float = 60.0, **columns: float) -> DiskSample:
    plain = {"tps": 20.0, "rkB": 320.0, "wkB": 320.0, "await": 5.0, "aqu-sz": 0.1, "util-percent": 10.0}
    return DiskSample(
        "oss1", "sda", START, seconds, {**plain, **{k.replace("_", "-"): v for k, v in columns.items()}}
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"tps": 3689348814741910528.0, "await": 0.0},
        {"tps": 9223372036854775808.0},
        {"tps": 2**32 / 60, "await": 0.0},
        {"tps": 20.0, "await": 3579139.41},
        {"tps": 20.0, "await": 3579139.41, "aqu_sz": 71_582.0},
        {"tps": 0.0, "rkB": 858993457.60},
        {"tps": 20.0, "wkB": 858993457.60},
        {"util_percent": 214748364.70},
        {"aqu_sz": 9e9},
        {"await": -1.0},
        {"await": float("inf")},
        {"tps": -3.0},
        {"rkB": -1.0},
    ],
)
def test_a_counter_that_went_backwards_is_no_measurement(columns: dict[str, float]) -> None:
    with pytest.raises(NotMeasuredError):
        measured(sample(**columns), 60.0)


@given(
    st.floats(1, 3600),
    st.integers(1, 1000),
    st.sampled_from([2**32, 2**64]),
    st.sampled_from(["requests", "ms"]),
)
def test_any_counter_that_fell_by_a_little(seconds: float, fell: int, wrap: int, what: str) -> None:
    total = wrap - fell
    columns = (
        {"tps": total / seconds} if what == "requests" else {"tps": 20.0, "await": total / seconds / 20.0}
    )
    with pytest.raises(NotMeasuredError):
        measured(sample(seconds, **columns), 60.0)


@given(st.floats(0.01, 1e6), st.floats(0, 1e5), st.floats(0, 1e6), st.floats(1, 3600))
def test_values_of_disks_are_measurements(tps: float, await_ms: float, kb: float, seconds: float) -> None:
    if tps * await_ms / 1000 > 1000 or kb > 1e5 * tps:
        return  # a thousand requests wait, or are of 100 MB each
    values = measured(sample(seconds, tps=tps, await_=0, rkB=kb, **{"await": await_ms}), 60.0)
    assert values[0] == await_ms


def test_unknown_columns_are_unknown() -> None:
    found = measured(DiskSample("a", "sda", START, 60.0, {"tps": 5.0, "await": 5.0}), 60.0)
    assert found[:2] == (5.0, 300.0)
    assert all(np.isnan(value) for value in found[2:])
    assert np.isnan(measured(DiskSample("a", "sda", START, 60.0, {"await": 5.0}), 60.0)[1])


@pytest.mark.parametrize("missing", ["r_await", "w_await", "r/s", "w/s", "d_await"])
def test_a_direction_that_is_unknown_makes_the_whole_unknown(missing: str) -> None:
    known = {"r/s": 10.0, "w/s": 30.0, "d/s": 1.0, "r_await": 2.0, "w_await": 10.0, "d_await": 1.0}
    columns = {name: value for name, value in known.items() if name != missing}
    with pytest.raises(NotMeasuredError, match="no await"):
        measured(DiskSample("a", "sda", START, 60.0, columns), 60.0)


def test_an_idle_direction_needs_no_await() -> None:
    columns = {"r/s": 0.0, "w/s": 30.0, "w_await": 10.0}
    assert measured(DiskSample("a", "sda", START, 60.0, columns), 60.0)[:2] == (10.0, 1800.0)


def test_iostats_awaits_are_weighted() -> None:
    columns = {"r/s": 30.0, "w/s": 10.0, "r_await": 2.0, "w_await": 10.0, "rMB/s": 1.0, "wMB/s": 3.0}
    found = measured(DiskSample("a", "sda", START, 60.0, columns), 60.0)
    assert found == (4.0, 2400.0, 4 * 2**20, 4 * 2**20 / 40, 0.25)


@pytest.mark.parametrize(
    ("device", "others", "is_one"),
    [
        ("dev8-49", ["dev8-48"], True),
        ("dev8-63", ["dev8-48"], True),
        ("dev8-64", ["dev8-48"], False),
        ("dev8-49", ["dev8-0"], False),
        ("dev65-1", ["dev65-0"], True),
        ("dev202-1", ["dev202-0"], True),
        ("dev179-1", ["dev179-0"], True),
        ("dev253-1", ["dev253-0"], False),
        ("dev259-1", ["dev259-0"], False),
        ("sda1", ["sda"], True),
        ("nvme0n1p2", ["nvme0n1"], True),
        ("nvme0n1", ["nvme0"], False),
        ("sdaa", ["sda"], False),
    ],
)
def test_partitions_by_name_and_number(device: str, others: list[str], is_one: bool) -> None:
    assert is_partition(device, {device, *others}) is is_one


def test_a_partition_is_one_also_where_its_disk_lacks_a_column(tmp_path: Path) -> None:
    lines = forms.steady(["dev8-0", "dev8-1"], 3, {})
    text = forms.sadf_json(lines).replace('"disk-device": "dev8-0"', '"other": "dev8-0"', 1)
    assert list(rows(write(tmp_path / "sa.json", text))) == ["oss1/dev8-0"]


# -- sadf itself


def fake_sadf(folder: Path, script: str) -> None:
    path = folder / "sadf"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def activity_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "sa02"
    path.write_bytes(b"\x96\xd5\x75\x21" + bytes(100))
    (tmp_path / "good.json").write_text(forms.sadf_json(forms.steady(["sda"], 3, {})))
    return path


@pytest.mark.parametrize("code", [0, 2])
def test_what_sadf_complains_of_is_told(activity_file: Path, code: int) -> None:
    folder = activity_file.parent
    complaint = "End of system activity file unexpected"
    fake_sadf(folder, f"head -c 600 {folder}/good.json; echo '{complaint}' >&2; exit {code}")
    remarks: list[str] = []
    assert len(rows(activity_file, remarks=remarks)["oss1/sda"]) == 1
    assert f"{activity_file}: sadf: {complaint}: read as far as it goes" in remarks


def test_a_conversion_that_crashes_blames_sadf(activity_file: Path) -> None:
    fake_sadf(
        activity_file.parent,
        'test "$1" = -c && { echo part of it; kill -SEGV $$; }\necho "use sadf -c" >&2; exit 1',
    )
    with pytest.raises(InputError, match=r"sadf -c failed \(signal 11, SIGSEGV\): convert it with another"):
        rows(activity_file)


@pytest.mark.skipif(shutil.which("sadf") is None, reason="sysstat is not installed")
def test_a_file_that_sadc_did_not_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sa02"
    sadc = next((p for p in ("/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc") if Path(p).exists()), None)
    if sadc is None:
        pytest.skip("no sadc beside sadf")
    run_command([sadc, "-S", "DISK", "1", "4", path])
    data = path.read_bytes()
    path.write_bytes(data[:-37])
    assert main(["diagnose", str(path), "--interval", "1", "--window", "2", "--shift", "1"]) == 0
    assert (
        f"{path}: sadf: End of system activity file unexpected: read as far as it goes"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("text", "value"), [("1.5k", 1.5), ("2M", 2048.0), ("0.5G", 524288.0), ("512B", 0.5)]
)
def test_units_of_readable_numbers(tmp_path: Path, text: str, value: float) -> None:
    lines = forms.sar_d(forms.steady(["sda"], 2, {}))
    shown, plain = (
        rows(write(tmp_path / name, lines.replace("320.00", name))) for name in (text, f"{value:.2f}")
    )
    assert_same(shown, plain)


@pytest.mark.parametrize("text", ["1b", "1K", "1m", "1\u212a", "1kk", "k"])
def test_other_units_are_told(tmp_path: Path, text: str) -> None:
    remarks: list[str] = []
    lines = forms.sar_d(forms.steady(["sda"], 3, {})).replace("320.00", text, 1)
    assert len(rows(write(tmp_path / "file", lines), remarks=remarks)["oss1/sda"]) == 2
    assert any(repr(text) in remark for remark in remarks)
