"""Waits for conditions, with one limit for all tests.

A test asserts a condition, never a duration of the machine that it runs on. The limit ends a wait for a
condition that never comes true; LAGGARD_TEST_PATIENCE multiplies it.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = float(os.environ.get("LAGGARD_TEST_PATIENCE", "1"))
LIMIT_SECONDS = 240.0 * PATIENCE
"""Limit of one wait."""
TEST_LIMIT_SECONDS = 600.0 * PATIENCE
"""Limit of one test, set in tests/conftest.py for every test."""
LONG_TEST_LIMIT_SECONDS = 1200.0 * PATIENCE
"""Limit of a test that boots machines or runs a site for minutes: `pytest.mark.timeout(...)`."""

_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.05

T = TypeVar("T")


def wait_until(condition: Callable[[], T], description: str = "") -> T:
    """The first true result of `condition`. Fails after LIMIT_SECONDS."""
    deadline = time.monotonic() + LIMIT_SECONDS
    pause = _FIRST_PAUSE_SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, _failure(condition, description)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return result


async def async_wait_until(condition: Callable[[], T], description: str = "") -> T:
    """`wait_until` for coroutines: the event loop runs between two calls of `condition`."""
    deadline = time.monotonic() + LIMIT_SECONDS
    pause = 0.0
    while not (result := condition()):
        assert time.monotonic() < deadline, _failure(condition, description)
        await asyncio.sleep(pause)
        pause = min(2 * pause + _FIRST_PAUSE_SECONDS / 2, _LONGEST_PAUSE_SECONDS)
    return result


def time_limit() -> asyncio.Timeout:
    """`asyncio.timeout` with the limit of all tests: `async with time_limit():`."""
    return asyncio.timeout(LIMIT_SECONDS)


def _failure(condition: object, description: str) -> str:
    name = description or getattr(condition, "__qualname__", repr(condition))
    return f"not true within {LIMIT_SECONDS:.0f} s: {name}"
