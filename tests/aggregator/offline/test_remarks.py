"""Remarks of a run: groups that were not compared, and components that were idle throughout."""

import numpy as np

from laggard_aggregator.offline.findings import Findings
from tests.support.builders.live_status import judgement

NAMES = [f"oss1/sd{letter}" for letter in "abcde"]


def remarks(severity: list[float], idle: list[str]) -> list[str]:
    findings = Findings(lambda _: 3)
    findings.add(judgement("disks", NAMES, [0] * 5, severity, [False] * 5))
    return list(findings.remarks({"disks": idle}, {}))


def test_a_group_that_was_judged_is_not_idle_by_its_end() -> None:
    assert remarks([1.0] * 5, NAMES) == []
    assert remarks([1.0] * 4 + [np.nan], NAMES) == ["disks: 1 of 5 components idle in all windows"]


def test_a_group_without_verdicts_has_no_peers() -> None:
    assert remarks([np.nan] * 5, NAMES) == [
        "disks: 5 of 5 components idle in all windows",
        "disks: not compared, it has 0 active components: at least 4 peers are needed",
    ]


def test_a_component_that_was_never_judged_is_named_and_has_no_score() -> None:
    findings = Findings(lambda _: 3)
    findings.add(judgement("disks", NAMES, [0] * 5, [1.0] * 4 + [np.nan], [False] * 5))
    assert list(findings.remarks({}, {"oss1/sde": "oss1/sdz"})) == [
        "disks: never judged, few samples or little I/O beside the peers': oss1/sdz"
    ]
    for of in (findings.components(), findings.days()):
        assert [np.isnan(finding.score) for finding in of] == [False] * 4 + [True]
