"""Reports for the tests of mails."""

from dataclasses import replace
from typing import Any

from laggard_aggregator.notify.email.test_mail import sample
from laggard_aggregator.notify.report import Ending, Report

NOW = 1_760_000_500.0
PAGE = "https://laggard.example.org"


def report(**others: Any) -> Report:
    """The test mail's report, with what a test wants otherwise."""
    return replace(sample(NOW, PAGE), **others)


def ending(name: str = "oss-1/sda", **others: Any) -> Ending:
    made = Ending(
        name=name,
        claim="keeps up with its peers again",
        lasted="2 h",
        since="2026-01-01 10:00 UTC",
        ended="2026-01-01 12:00 UTC",
        factor="4.0×",
        recovered=True,
        url=f"{PAGE}/component/luns/{name}",
    )
    return replace(made, **others)
