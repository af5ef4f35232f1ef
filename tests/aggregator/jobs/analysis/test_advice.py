"""Advice: each rule at its limit, and nothing without data."""

from dataclasses import replace
from typing import Any

import pytest

from laggard_aggregator.jobs.verdict.analysis.advice import RULES, Footprint, advice

GOOD = Footprint(
    nodes=64,
    read_bytes=1e11,
    written_bytes=1e11,
    reads=1e5,
    writes=1e5,
    opens=200,
    files=100,
    metadata_rate=20,
    file_bytes=1e11,
    forwarder_bytes=1e11,
    modes={"write": {"N-N": 1.0}, "read": {"N-N": 1.0}},
    largest_shared_file=1e9,
    stripes=8,
)


def test_a_good_job_gets_none() -> None:
    assert advice(GOOD) == []


@pytest.mark.parametrize(
    ("kind", "bad", "just_good", "call"),
    [
        (
            "shared file",
            {"nodes": 33, "modes": {"write": {"N-1": 0.6}}},
            {"nodes": 32},
            "MPI_File_write_at_all",
        ),
        ("single process", {"modes": {"write": {"1-1": 0.9}}}, {"modes": {"write": {"1-1": 0.05}}}, "H5Pset"),
        ("small writes", {"writes": 1e11 / 65_000}, {"writes": 1e11 / 65_536}, "setvbuf"),
        ("small reads", {"reads": 1e11 / 65_000}, {"reads": 1e11 / 65_536}, "setvbuf"),
        ("metadata rate", {"metadata_rate": 301}, {"metadata_rate": 300}, "MPI_Bcast"),
        ("opens", {"opens": 1e7}, {"opens": 9e6}, "open"),
        ("amplification", {"forwarder_bytes": 1.6e11}, {"forwarder_bytes": 1.5e11}, "posix_fadvise"),
        ("striping", {"largest_shared_file": 1e10, "stripes": 1}, {"stripes": 2}, "lfs setstripe"),
        ("re-reads", {"file_bytes": 4e10}, {"file_bytes": 5e10}, "MPI_Bcast"),
        ("small files", {"files": 3e5}, {"files": 1.9e5}, "HDF5"),
    ],
)
def test_each_rule_at_its_limit(kind: str, bad: dict[str, Any], just_good: dict[str, Any], call: str) -> None:
    (found,) = advice(replace(GOOD, **bad))
    assert found.kind == kind
    assert call in found.advice
    assert found.factor >= 1
    assert 0 <= found.share <= 1
    assert advice(replace(GOOD, **{**bad, **just_good})) == []


def test_unknown_triggers_nothing() -> None:
    assert advice(Footprint(nodes=4000, read_bytes=1e14, written_bytes=1e14)) == []


def test_a_trivial_job_is_told_of_metadata_alone() -> None:
    job = Footprint(64, 1e6, 1e6, reads=1e5, opens=5000, files=5000, metadata_rate=900)
    assert [each.kind for each in advice(job)] == ["metadata rate", "opens"]


def test_the_larger_share_comes_first_and_the_order_is_fixed() -> None:
    job = replace(GOOD, written_bytes=9e11, writes=9e11 / 1e3, file_bytes=1e9, modes={"write": {"N-1": 1.0}})
    assert [each.kind for each in advice(job)] == ["shared file", "small writes", "re-reads"]
    assert len(RULES) == 8
