"""Recordings made with real tools (`shared_data`): all figures of an independent script, and the
candidates.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.aggregator.layers.analysed import Analysed, analysed
from tests.support.shared_data import ROOT

RECORDED = ROOT / "layers_recorded"
CASES = sorted(each.name for each in RECORDED.iterdir() if each.is_dir()) if RECORDED.is_dir() else ["none"]
CANDIDATES = {
    "a_aio_one_descriptor": [("serialisation", "between library and system call")],
    "d_readers8_small_readahead": [("interleaving", "application")],
    "g_client_blocking": [("idle", "between application and server")],
}
"""All other cases are cured twins, or healthy."""

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not RECORDED.is_dir(), reason="the recordings do not lie beside the project"),
]


def expected(case: str) -> dict[str, Any]:
    known = json.loads((RECORDED / case / "meta.json").read_text())["expected"]
    assert isinstance(known, dict)
    return known


def of(found: Analysed, label: str) -> dict[str, Any]:
    name, _, device = label.partition(" ") if "," in label else (label, "", "")
    return found.layer("syscall" if name == "system call" else name, device or None)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_description", [True, False], ids=["described", "bare"])
def test_layers(case: str, with_description: bool) -> None:
    files = [p for p in (RECORDED / case).iterdir() if not p.name.startswith("tracefs")]
    found = analysed(*(p for p in files if with_description or p.name != "meta.json"))
    for label, known in expected(case)["layers"].items():
        mine = of(found, label)
        assert (mine["requests"], mine["bytes"]) == (known["requests"], known["bytes"]), label
        assert mine["mean_concurrency_busy"] == pytest.approx(known["concurrency"], abs=0.0051), label
        assert mine["max_concurrency"] == known["max"], label
        assert mine["busy_seconds"] == pytest.approx(known["busy_s"], abs=5.1e-5), label
        assert mine["mean_residence_us"] == pytest.approx(known["mean_us"], abs=0.051), label
        assert mine["mib_per_second_busy"] == pytest.approx(known["mib_s_busy"], rel=1e-3, abs=0.051), label
        if "run_kib" in known:
            assert mine["mean_run_bytes"] / 1024 == pytest.approx(known["run_kib"], abs=0.051), label


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("recorder", ["perf", "tracefs"])
def test_matching(case: str, recorder: str) -> None:
    other = {"perf": "tracefs", "tracefs": "perf"}[recorder]
    found = analysed(*(p for p in (RECORDED / case).iterdir() if not p.name.startswith(other)))
    known = expected(case)["match"]
    top = "server" if "client" in case else "application"
    above = found.boundary(top, "system call")
    assert above["nested"] == known["application to system call"] == 1.0
    below = found.boundary("system call", "block")
    names = {
        "nested": "nested",
        "earlier": "earlier",
        "earlier, complete before the call": "hit",
        "later": "later",
    }
    for name, share in known["system call to block"].items():
        assert below[names[name]] == pytest.approx(share, abs=0.0026 if recorder == "tracefs" else 6e-5)
    explained, of_all = known["block requests that some system call explains"].split(" of ")
    assert below["explained"] == int(explained)
    assert below["explained"] + below["unexplained"] == int(of_all)
    assert below["several_extents"] == known["requests over two or more extents"]
    times = found.layer(top)
    if times["layer"] == "application":
        for key, value in expected(case)["breakdown_us"].items():
            assert times[f"{key}_us"] == pytest.approx(value, abs=0.051 if recorder == "perf" else 1.0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("recorder", ["perf", "tracefs"])
def test_candidates(case: str, recorder: str) -> None:
    other = {"perf": "tracefs", "tracefs": "perf"}[recorder]
    found = analysed(*(p for p in (RECORDED / case).iterdir() if not p.name.startswith(other)))
    assert found.findings == CANDIDATES.get(case, [])


def test_a_healthy_recording_makes_its_like_silent() -> None:
    assert (
        analysed(
            RECORDED / "d_readers8_small_readahead", "--healthy", RECORDED / "d_readers8_small_readahead"
        ).findings
        == []
    )
    found = analysed(RECORDED / "a_aio_one_descriptor", "--healthy", RECORDED / "b_threads8").findings
    assert found == CANDIDATES["a_aio_one_descriptor"]


def test_dlio(tmp_path: Path) -> None:
    import tarfile  # noqa: PLC0415

    with tarfile.open(ROOT / "traces" / "dftracer-dlio.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    found = analysed(*sorted(tmp_path.glob("*.pfw")))
    reader, posix = found.layer("reader"), found.layer("POSIX")
    assert (reader["requests"], round(reader["residence_seconds"], 2)) == (4008, 299.99)
    assert round(found.records[0]["span_seconds"], 2) == 56.70
    assert (posix["requests"], round(posix["mean_concurrency_busy"], 2), posix["max_concurrency"]) == (
        10581,
        6.6,
        16,
    )
    assert found.boundary("reader", "POSIX")["explained"] > 10_000
