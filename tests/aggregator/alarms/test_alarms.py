"""One alarm an episode: raised once, kept up to date, cleared once."""

from dataclasses import replace
from math import isnan

import pytest

from laggard_aggregator.alarms.alarms import Alarm, AlarmBook
from laggard_aggregator.alarms.factors import factor_now

ALARM = Alarm(
    group="luns",
    component="oss-1/sda",
    metric="await",
    level="component",
    since=1000.0,
    raised_at=1300.0,
    updated_at=1300.0,
    score=9.0,
    severity=3.0,
    worst_severity=3.0,
    observed=30.0,
    reference=10.0,
)


def test_raised_once_and_cleared_once() -> None:
    book = AlarmBook()
    raised = book.update(ALARM)
    assert raised is not None
    assert (raised.kind, raised.at) == ("raised", 1300.0)
    assert (
        book.update(replace(ALARM, updated_at=1400.0, raised_at=1400.0, severity=5.0, worst_severity=5.0))
        is None
    )
    assert (
        book.update(replace(ALARM, updated_at=1500.0, raised_at=1500.0, severity=2.0, worst_severity=2.0))
        is None
    )
    standing = book.standing[ALARM.key]
    assert (standing.raised_at, standing.updated_at) == (1300.0, 1500.0)
    assert (standing.severity, standing.worst_severity) == (2.0, 5.0)
    cleared = book.clear(ALARM.key, 1600.0)
    assert cleared is not None
    assert (cleared.kind, cleared.at, cleared.alarm) == ("cleared", 1600.0, standing)
    assert book.clear(ALARM.key, 1700.0) is None
    assert not book.standing


def test_waits_for_after_seconds() -> None:
    book = AlarmBook(after_seconds=600.0)
    assert book.update(ALARM) is None
    assert not book.standing
    raised = book.update(replace(ALARM, updated_at=1600.0, raised_at=1600.0))
    assert raised is not None
    assert raised.alarm.since == 1000.0


def test_goes_on_from_a_saved_state() -> None:
    book = AlarmBook()
    book.update(ALARM)
    restored = AlarmBook()
    restored.restore(book.state())
    assert restored.update(replace(ALARM, updated_at=1400.0)) is None
    assert restored.standing[ALARM.key].raised_at == 1300.0


def test_evidence_says_what_is_known_and_nothing_else() -> None:
    none = float("nan")
    assert ALARM.evidence() == "30, its peers 10 (3.00 times)"
    assert replace(ALARM, severity=none).evidence() == "30, its peers 10 (score 9)"
    causes = (("server/libc.so.6/pread", 4.0), ("server/server/main", 1.0))
    assert (
        replace(ALARM, severity=none, causes=causes).evidence().endswith(" (most in server/libc.so.6/pread)")
    )
    assert replace(ALARM, severity=none, observed=none, reference=none).evidence() == "score 9"
    at_times = replace(ALARM, slow_share=0.331, slow_severity=6.5)
    assert at_times.evidence() == "30, its peers 10 (3.00 times, 6.50 in 33 % of the time)"
    assert ALARM.evidence("known peak") == "30, its known peak 10 (3.00 times)"


def test_the_worst_severity_is_of_the_windows_that_had_one() -> None:
    none = float("nan")
    book = AlarmBook()
    book.update(replace(ALARM, severity=none, worst_severity=none))
    for severity in (2.0, none, 1.5):
        book.update(replace(ALARM, severity=severity, worst_severity=severity))
        assert book.standing[ALARM.key].worst_severity == 2.0


def test_a_factor_beside_two_values_is_their_quotient() -> None:
    assert factor_now(ALARM) == 3.0
    assert factor_now(ALARM, worse=-1) == pytest.approx(1 / 3)
    assert factor_now(replace(ALARM, reference=90.0), worse=0) == 3.0
    averaged = replace(ALARM, observed=60.0, severity=4.3)
    assert averaged.evidence() == "60, its peers 10 (6.00 times, 4.30 on average)"
    unknown = float("nan")
    odd = (
        replace(ALARM, observed=unknown),
        replace(ALARM, reference=0.0),
        replace(ALARM, observed=-1.0),
        replace(ALARM, severity=unknown),
    )
    assert all(isnan(factor_now(alarm)) for alarm in odd)
