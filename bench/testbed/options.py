"""Arguments that the testbeds' commands share, each checked as it is read."""

from __future__ import annotations

import argparse
from typing import Any

MAX_MINUTES = 60.0
GOLDEN = 0.618034
"""From run to run the fault begins later within a shift of the windows, so that all places are met alike."""


def count(least: int, most: int) -> Any:
    """Return what turns an argument into a whole number of this range."""

    def checked(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected {least}-{most}, got {text}")
        return int(text)

    return checked


def minutes(text: str) -> float:
    """Return an argument that is a time in minutes."""
    return _number(text, MAX_MINUTES)


def seconds(text: str) -> float:
    """Return an argument that is a time in seconds, of an hour at most."""
    return _number(text, MAX_MINUTES * 60)


def _number(text: str, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= most:
        raise argparse.ArgumentTypeError(f"expected more than 0, at most {most:g}, got {text}")
    return number
