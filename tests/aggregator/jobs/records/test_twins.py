"""Readers of jobs' sources against slow second parsers, on generated files."""

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.jobs.darshan.slurm_input import slurm_rows
from tests import naive_jobs_sources as naive
from tests.support.job_records import read_bytes

ZONE = "Europe/Berlin"
AUTUMN = int(naive.autumn(ZONE, 2025).timestamp())
MOMENT = st.integers(AUTUMN - 5400, AUTUMN + 1800) | st.integers(1_700_000_000, 1_800_000_000)


def runs_of(rows: list[dict[str, Any]]) -> Counter[naive.NaiveRun]:
    names = ("raw_id", "state", "submit", "start", "end", "node_list", "cpus", "doubtful")
    return Counter(naive.NaiveRun(*(row[name] for name in names)) for row in rows)


def shown(moment: int, form: str) -> str:
    local = datetime.fromtimestamp(moment, ZoneInfo(ZONE))
    if form == "offset":
        return local.isoformat()
    return local.strftime("%Y-%m-%dT%H:%M:%S") if form == "local" else str(moment)


@st.composite
def slurm_rows_of(draw: st.DrawFn) -> dict[str, str]:
    submit = draw(MOMENT)
    start = submit + draw(st.integers(-50, 4000))
    end = start + draw(st.integers(-5, 4000))
    form = draw(st.sampled_from(["local", "local", "epoch", "offset"]))
    unknown = draw(st.sampled_from([(), (), (), ("Start",), ("End",), ("Submit",)]))
    times = {"Submit": submit, "Start": start, "End": end}
    return {
        "JobIDRaw": draw(st.sampled_from(["7", "8", "9", "10", "7.batch", "x", "123456789012"])),
        "State": draw(st.sampled_from([*sorted(naive.STATES), "CANCELLED by 5", "COMPLETED+", "odd", ""])),
        **{
            name: draw(st.sampled_from(["Unknown", "None", "", "soon"]))
            if name in unknown
            else shown(at, form)
            for name, at in times.items()
        },
        "ElapsedRaw": draw(st.sampled_from([*[str(max(end - start, 0))] * 3, "", "Unknown"])),
        "NodeList": draw(st.sampled_from(["n1", "n[1-3,7]", "None assigned", "", "(null)"])),
        "AllocCPUS": draw(st.sampled_from(["", "4", "5", "6", "2K", "1.5K", "x", "0"])),
        "JobName": draw(st.text("ab|,\x1f ", max_size=5)),
    }


@given(st.lists(slurm_rows_of(), max_size=20), st.randoms(use_true_random=False), st.sampled_from("|\x1f"))
def test_sacct(rows: list[dict[str, str]], chance: Any, separator: str) -> None:
    names = ["JobIDRaw", "State", "Submit", "Start", "End", "ElapsedRaw", "NodeList", "AllocCPUS"]
    chance.shuffle(names)
    names.append("JobName")
    text = "\n".join([separator.join(names), *(separator.join(row[name] for name in names) for row in rows)])
    found, report = read_bytes(f"{text}\n".encode(), zone=ZONE)
    expected = naive.sacct(text, separator, ZONE)
    assert runs_of(found) == Counter(expected)
    assert report.records == len(expected)
    assert report.records + report.steps + report.broken.total() == len(rows)


@st.composite
def pbs_lines(draw: st.DrawFn) -> str:
    start = draw(st.integers(1_700_000_000, 1_800_000_000))
    kind = draw(st.sampled_from("SERQD"))
    hosts = draw(st.lists(st.sampled_from(["n1/0", "n1/1", "n2/0*4", "n3/2*2"]), min_size=1, max_size=4))
    values = {
        "user": "ann",
        "ctime": start - draw(st.integers(0, 500)),
        "etime": start - draw(st.integers(0, 500)),
        "start": start,
        "exec_host": "+".join(hosts),
        "end": start + draw(st.integers(0, 9000)),
        "Exit_status": draw(st.sampled_from([0, 1, 255, 271])),
    }
    for name in draw(st.sets(st.sampled_from(["ctime", "start"]), max_size=1)):
        if draw(st.booleans()):
            del values[name]
    pairs = " ".join(f"{name}={value}" for name, value in values.items())
    number = draw(st.sampled_from(["7.pbs", "8[2].pbs", "9", "x.pbs"]))
    return f"11/29/2026 10:00:00;{kind};{number};{pairs}"


@given(st.lists(pbs_lines() | st.sampled_from(["", "odd", ";;;", "d;E;7;", "d;S;8;no keys"]), max_size=6))
def test_pbs(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    found, _ = read_bytes(text.encode(), "pbs")
    assert runs_of(found) == Counter(naive.pbs(text))


FLUX = st.fixed_dictionaries(
    {
        "id": st.integers(1, 1 << 62),
        "t_submit": st.sampled_from([0.0, 5.5, 1_700_000_000.25]),
        "t_run": st.sampled_from([0.0, 1.0, 1_700_000_100.5]),
        "state": st.sampled_from(["SCHED", "RUN"]),
        "nodelist": st.sampled_from(["", "n[0-3]"]),
        "ncores": st.integers(1, 1 << 20) | st.none(),
    },
    optional={
        "result": st.sampled_from(["COMPLETED", "FAILED", "CANCELED", "TIMEOUT", ""]),
        "t_cleanup": st.sampled_from([0.0, 2.0, 1_700_000_200.75]),
        "t_inactive": st.sampled_from([0.0, 1_700_000_201.0]),
    },
)


@given(st.lists(FLUX, max_size=4))
def test_flux(jobs: list[dict[str, Any]]) -> None:
    text = json.dumps({"jobs": jobs})
    found, report = read_bytes(text.encode(), "flux")
    expected = naive.flux(text)
    assert runs_of(found) == Counter(expected)
    assert report.broken.total() == len(jobs) - len(expected)


@given(st.lists(st.tuples(st.integers(-9000, 9000), st.integers(0, 9000)), min_size=1, max_size=5))
def test_pytokios_hour(steps: list[tuple[int, int]]) -> None:
    texts = [(shown(AUTUMN + at, "local"), shown(AUTUMN + at + length, "local")) for at, length in steps]
    document = {
        f"7.{number}": {"start": start, "end": end, "nodelist": ["n1"]}
        for number, (start, end) in enumerate(texts)
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "steps.json"
        path.write_text(json.dumps(document))
        rows = [row for _, part in slurm_rows(path, ZONE, []) for row in part.to_pylist()]
    found = [(row["start_us"] / 1e6, row["end_us"] / 1e6) for row in rows]
    assert found == list(naive.pytokio_hours(texts, ZONE))
