"""The table of promised and reached gains."""

from bench.jobs_advice_gain import PROMISE, Round, table
from laggard_aggregator.jobs.verdict.analysis.advice import Footprint, advice
from laggard_aggregator.jobs.verdict.analysis.advised_gain import RequestWaits


def test_the_median_of_a_rule_decides() -> None:
    good = [Round("small writes", 20.0, after, 10.0, "") for after in (2.0, 8.0, 11.0)]
    lines, kept = table(good)
    assert kept
    assert lines[2] == (
        "| small writes | 20.0 (20.0 to 20.0) | 8.0 (2.0 to 11.0) | 10.0 (10.0 to 10.0)"
        " | 12.0 (9.0 to 18.0) | 1.2 (0.9 to 1.8) | yes |"
    )
    for bad in (Round("small reads", 20.0, 6.0, 10.0, ""), Round("small reads", 20.0, 6.0, None, "")):
        lines, kept = table([*good, bad])
        assert not kept
        assert lines[-1].endswith("| no |")


def test_the_promise_is_read_from_the_sentence() -> None:
    waited = RequestWaits(job=9000.0, active=8000.0, reads=0.0, writes=8000.0, metadata=0.0)
    (found,) = advice(Footprint(4, 0.0, 1e9, writes=1e6, waiting=waited))
    said = PROMISE.search(found.advice)
    assert said is not None
    assert said.groups() == ("2.2", "h")
