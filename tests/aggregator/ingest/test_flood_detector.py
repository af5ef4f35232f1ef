"""Who floods is named, and only that one."""

import logging

import pytest

from laggard_aggregator.ingest.ingest_queue import FLOOD_PER_SECOND, MAX_SENDERS, FloodDetector, IngestQueue

TOO_MANY = round(FLOOD_PER_SECOND * 10) + 1


def test_the_fastest_is_named_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    senders = FloodDetector()
    for end_period in range(3):
        for _ in range(TOO_MANY + end_period):
            senders.add("cn-7")
        for _ in range(TOO_MANY - 1):
            senders.add("cn-8")
        senders.end_period(10.0)
        assert senders.flooding == (("cn-7", (TOO_MANY + end_period) / 10) if end_period else None)
    for _ in range(TOO_MANY - 1):
        senders.add("cn-7")
    senders.end_period(10.0)
    assert senders.flooding is None
    assert [(each.levelname, "cn-7" in each.message) for each in caplog.records] == [
        ("WARNING", True),
        ("INFO", True),
    ]


def test_strangers_names_are_bounded_and_what_is_no_name_is_not_told() -> None:
    senders = FloodDetector()
    for number in range(MAX_SENDERS + 10):
        senders.add(f"n{number}")
    for _ in range(2):
        for _ in range(TOO_MANY):
            senders.add(f"n{MAX_SENDERS + 1}")
            senders.add("no\nname")
            senders.add("n" * 60_000)
        senders.end_period(10.0)
        for number in range(MAX_SENDERS):
            senders.add(f"n{number}")
    assert senders.flooding is None


def test_the_inbox_counts_what_it_drops_too() -> None:
    box = IngestQueue(10)
    for _ in range(2):
        box.put([("laggard/1/site/storage/cn-7/status", b"", 0)] * TOO_MANY)
        box.senders.end_period(10.0)
    assert box.senders.flooding == ("cn-7", TOO_MANY / 10)
