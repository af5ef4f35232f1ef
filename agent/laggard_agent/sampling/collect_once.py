"""Reads a collector once and contains its errors."""

from dataclasses import dataclass

from laggard_agent.collectors.interface import Collector, Reading
from laggard_common.clock import Clock
from laggard_common.errors import CollectError

_MAX_ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class Health:
    """Result of a collector's latest read. `components`: rows read; `error`: empty on success."""

    success: bool
    seconds: float
    components: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """One read of a collector. `readings` includes those before an error.

    `bug`: an error other than CollectError, which no collector should raise.
    """

    readings: tuple[Reading, ...]
    health: Health
    bug: Exception | None = None


def collect(collector: Collector, clock: Clock) -> Collected:
    """Reads `collector` once; never raises."""
    started = clock.monotonic_ns()
    readings: list[Reading] = []
    error = ""
    bug: Exception | None = None
    try:
        readings.extend(collector.read())
    except CollectError as exc:
        error = str(exc)
    except Exception as exc:
        error = f"{type(exc).__name__}: {exc}"
        bug = exc
    seconds = (clock.monotonic_ns() - started) / 1e9
    rows = sum(len(reading.rows) for reading in readings)
    return Collected(tuple(readings), Health(not error, seconds, rows, error[:_MAX_ERROR_CHARS]), bug)
