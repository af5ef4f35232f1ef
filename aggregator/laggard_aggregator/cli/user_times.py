"""Times and durations that users give to commands: the same forms as in the page's addresses."""

import time

from laggard_aggregator.status.urls import parse_duration, parse_time
from laggard_common.errors import ConfigError


def epoch_seconds(option: str, text: str | None) -> float | None:
    """Epoch seconds of an ISO 8601 time, which is UTC without an offset, of `-12h`, or of epoch seconds.

    None for an empty text. Raises ConfigError.
    """
    if not text:
        return None
    try:
        return parse_time(text, time.time())
    except ValueError as exc:
        expected = "expected a time such as 2026-01-31T10:00, 2026-01-31 or -12h"
        raise ConfigError("", [f"{option}: {expected}, got {text[:40]!r}"]) from exc


def duration_seconds(option: str, text: str) -> float:
    """Seconds of `90min`, `8h` or `2d`. Raises ConfigError."""
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise ConfigError(
            "", [f"{option}: expected a time such as 90min, 8h or 2d, got {text[:40]!r}"]
        ) from exc


def seconds_until(option: str, text: str) -> float:
    """Seconds from now to a time of the future, given as `epoch_seconds` takes it. Raises ConfigError."""
    seconds = (epoch_seconds(option, text) or 0.0) - time.time()
    if seconds <= 0:
        raise ConfigError("", [f"{option}: expected a time in the future, got {text[:40]!r}"])
    return seconds
