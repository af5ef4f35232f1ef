"""Every capture of a real Lustre that lies beside the project is understood to the last line."""

from pathlib import Path

import pytest

from laggard_agent.collectors.lustre.param_paths import ParamDump, Parameters
from laggard_agent.collectors.lustre.table_specs import JOB_TABLES, TABLES
from tests.agent.collectors.lustre.test_hostile import PARSERS
from tests.support.builders.lustre import Watched, trees
from tests.support.shared_data import ROOT, shared

LUSTRE = ROOT / "lustre"
TREES = sorted(path.parent.name for path in LUSTRE.glob("*/proc"))
DUMPS = sorted(str(path.relative_to(LUSTRE)) for path in LUSTRE.rglob("*.txt"))
RAW = ("brw_stats_empty.txt", "brw_stats_with_start_and_elapsed_time.txt")

# Rows that each capture must come to: the collector may find more, never less.
EXPECTED = {
    "hpe_lustre_exporter_2.10.1": {
        "lustre_ost": 4,
        "lustre_brw": 5,
        "lustre_oss_service": 5,
        "lustre_mdt": 1,
        "lustre_mds_service": 7,
        "lustre_llite": 1,
        "lustre_osc": 7,
        "lustre_osc_rpc": 7,
        "lustre_mdc": 1,
        "lustre_mdc_rpc": 1,
        "lustre_job_ost": 35,
        "lustre_job_mdt": 15,
    },
    "lmt_2.10.8": {"lustre_ost": 1, "lustre_brw": 1, "lustre_mdt": 1},
    "lmt_2.15.4_1": {"lustre_ost": 4, "lustre_brw": 4, "lustre_mdt": 4},
    "lmt_2.0.50.zfs": {"lustre_ost": 1, "lustre_mdt": 1},
    "telegraf_lustre2_v2.12": {
        "lustre_ost": 1,
        "lustre_brw": 1,
        "lustre_mdt": 1,
        "lustre_job_ost": 2,
        "lustre_job_mdt": 2,
    },
    "whamcloud_client_2.14.0_ddn259/client_excerpt.txt": {
        "lustre_llite": 1,
        "lustre_osc": 2,
        "lustre_osc_rpc": 1,
        "lustre_mdc": 1,
        "lustre_mdc_rpc": 1,
    },
    "whamcloud_lustrefs_exporter/valid/valid.txt": {
        "lustre_ost": 2,
        "lustre_oss_service": 5,
        "lustre_mdt": 1,
    },
    "whamcloud_lustrefs_exporter/valid/valid_mds.txt": {"lustre_mdt": 1, "lustre_mds_service": 8},
}


@pytest.mark.shared_data
def test_the_captures_are_there() -> None:
    shared("lustre")
    assert {*TREES, *DUMPS} >= {*EXPECTED}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", [*TREES, *DUMPS])
def test_no_line_is_left_over(name: str) -> None:
    capture = shared(f"lustre/{name}")
    parameters: Parameters = ParamDump(capture) if capture.is_file() else trees(capture)
    watched = Watched(parameters, job_stats=True)
    for _ in range(2):
        watched.sample()
        print(
            f"{name}: {watched.node('files_read')} files, not understood: {dict(watched.collector.leftovers)}"
        )
        assert watched.error == ""
        assert watched.collector.leftovers == {}
        rows = {source: len(reading.rows) for source, reading in watched.readings.items()}
        assert all(rows.get(source, 0) >= least for source, least in EXPECTED.get(name, {}).items()), rows


PAGE = (Path(__file__).resolve().parents[4] / "agent/laggard_agent/collectors/lustre/README.md").read_text()
VALID = "whamcloud_lustrefs_exporter/valid"
SHOWN = {
    "2.0.50": "lmt_2.0.50.zfs",
    "2.10.1": "hpe_lustre_exporter_2.10.1",
    "2.10.8": "lmt_2.10.8",
    "2.12": "telegraf_lustre2_v2.12",
    "2.14.0_ddn145": f"{VALID}/lustre-2.14.0_ddn145/2.14.0_ddn145_stats.txt",
    "2.14 client": f"{VALID}/lustre-2-14-0/client/llite_client.txt",
    "2.14.0_ddn259": "whamcloud_client_2.14.0_ddn259/client_excerpt.txt",
    "2.15.4": "lmt_2.15.4_1",
    "EXAScaler 6.2.0-r9": f"{VALID}/params-6.2.0-r9.txt",
    "not stated (`valid`)": f"{VALID}/valid.txt",
    "not stated (`valid_mds`)": f"{VALID}/valid_mds.txt",
}


@pytest.mark.shared_data
def test_the_page_shows_what_is_found() -> None:
    lines = PAGE.partition("Counters found in captures")[2].partition("\n\nThe captures")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    assert head[1:] == list(SHOWN)
    for column, name in enumerate(SHOWN.values(), 1):
        capture = shared(f"lustre/{name}")
        parameters: Parameters = ParamDump(capture) if capture.is_file() else trees(capture)
        found = Watched(parameters, job_stats=True).sample().readings
        told = {row[0].strip("`"): row[column] for row in rows if row[column] not in ("", "empty")}
        assert told == {s: f"{len(r.rows)} x {len(r.fields)}" for s, r in found.items() if s != "lustre"}, (
            name
        )


def files_read() -> list[Path]:
    """All files of the captures whose name is that of a file that the collector reads."""
    names = {file for table in (*TABLES, *JOB_TABLES) for file in table.files} & PARSERS.keys()
    folders = ("llite", "osc", "mdc", "obdfilter", "mdt", "ost", "mds", "osd-ldiskfs", "osd-zfs")
    found = [path for path in LUSTRE.rglob("*") if path.name in names and {*path.parts} & {*folders}]
    return sorted(found)


@pytest.mark.shared_data
def test_each_file_by_itself() -> None:
    shared("lustre")
    left = {}
    for path in files_read():
        if leftovers := PARSERS[path.name](path.read_bytes()).leftovers:
            left[str(path.relative_to(LUSTRE))] = leftovers
    assert left == {}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", RAW)
def test_brw_stats_that_have_nothing_to_say(name: str) -> None:
    parsed = PARSERS["brw_stats"](shared(f"lustre/whamcloud_lustrefs_exporter/{name}").read_bytes())
    assert parsed.leftovers == ()
    assert parsed.complete
