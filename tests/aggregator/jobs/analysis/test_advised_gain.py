"""Savings of advice: known answers, and no word where the counters cannot tell."""

from dataclasses import replace

import pytest

from laggard_aggregator.jobs.verdict.analysis.advice import Footprint, advice
from laggard_aggregator.jobs.verdict.analysis.advised_gain import (
    UNKNOWN_WAITS,
    RequestWaits,
    of_larger_requests,
    of_no_requests,
    seconds,
)

KIB = 2.0**10
# A node writes 100,000 times 4 KiB at 0.4 ms each, in a job of a minute that does I/O for 45 s.
WAITED = RequestWaits(job=60.0, active=45.0, reads=0.0, writes=40.0, metadata=5.0)
JOB = Footprint(
    nodes=4, read_bytes=0.0, written_bytes=4 * 4.096e8, writes=4e5, metadata_rate=900.0, waiting=WAITED
)


def test_larger_requests_leave_out_all_but_those_of_64_kib() -> None:
    assert of_larger_requests(WAITED, 40.0, 4 * KIB) == pytest.approx(40 * 15 / 16)
    assert of_larger_requests(WAITED, 40.0, 16 * KIB) == pytest.approx(30.0)
    assert of_larger_requests(WAITED, 40.0, 17 * KIB) is None, "they may cost by the byte"


def test_time_that_no_request_explains_is_added_where_a_job_does_little_but_wait() -> None:
    some = replace(WAITED, writes=30.0)
    assert of_no_requests(some, 30.0) == pytest.approx(30 * 45 / 35)
    much = replace(WAITED, writes=20.0)
    assert of_no_requests(much, 20.0) == pytest.approx(20 * 1.4), "no more than 40 %"
    computing = replace(WAITED, writes=15.0)
    assert of_no_requests(computing, 15.0) == pytest.approx(15.0), "most of its time is its own"


@pytest.mark.parametrize("unknown", ["active", "reads", "writes", "metadata"])
def test_nothing_is_added_when_a_part_is_unknown(unknown: str) -> None:
    some = {"active": 45.0, "reads": 0.0, "writes": 30.0, "metadata": 5.0} | {unknown: None}
    assert of_no_requests(RequestWaits(60.0, **some), 30.0) == pytest.approx(30.0)


def test_nothing_is_promised_where_the_counters_cannot_tell() -> None:
    assert of_no_requests(UNKNOWN_WAITS, 40.0) is None
    assert of_no_requests(WAITED, None) is None
    assert of_no_requests(WAITED, 61.0) is None, "several processes of a node wait side by side"
    assert of_no_requests(WAITED, 5.9) is None, "less than a tenth of the job"
    assert of_no_requests(replace(WAITED, job=5.0), 0.9) is None


def test_a_promise_is_never_longer_than_the_job() -> None:
    assert of_no_requests(RequestWaits(60.0, 75.0, 0.0, 59.0, 0.0), 59.0) == 60.0


def test_a_reader_is_told_of_it_in_the_sentence_of_the_advice() -> None:
    small, metadata = advice(JOB)
    assert small.advice.endswith(
        "1 MiB or more; that would save a node about 38 s of waiting for writes, in a job of 60 s"
    )
    assert metadata.kind == "metadata rate"
    assert "would save" not in metadata.advice, "5 s are less than a tenth of the job"
    for each in advice(replace(JOB, waiting=UNKNOWN_WAITS)):
        assert "would save" not in each.advice


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7.44, "7.4 s"),
        (99.4, "99 s"),
        (99.6, "1.7 min"),
        (3599, "60 min"),
        (11520, "3.2 h"),
        (1e6, "277.8 h"),
    ],
)
def test_times_are_short(value: float, text: str) -> None:
    assert seconds(value) == text
