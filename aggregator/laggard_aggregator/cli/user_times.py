"""Times that users give to commands: the same forms as in the page's addresses."""

import time

from laggard_aggregator.status.urls import parse_time
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
