"""Reads a collector once, and keeps a bad one from hurting anything else."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from laggard_agent.collectors.interface import Reading
from laggard_common.clock import Clock
from laggard_common.errors import CollectError


@dataclass(frozen=True, slots=True)
class Health:
    """How a collector's latest reading went. `components`: rows read; `error`: empty on success."""

    success: bool
    seconds: float
    components: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collector read at one tick; `readings` holds what there was before an error, too.

    `bug`: an error that no collector should raise.
    """

    readings: tuple[Reading, ...]
    health: Health
    bug: Exception | None = None


def collect(read: Callable[[], Iterable[Reading]], clock: Clock, spent_ns: int = 0) -> Collected:
    """What `read` says, a collector's; never raises, whatever it does.

    `spent_ns`: how long what belongs to the reading took before.
    """
    started = clock.monotonic_ns() - spent_ns
    readings: list[Reading] = []
    error = ""
    bug: Exception | None = None
    try:
        readings.extend(read())
    except CollectError as exc:
        error = str(exc)
    except Exception as exc:
        error = f"{type(exc).__name__}: {exc}"
        bug = exc
    seconds = (clock.monotonic_ns() - started) / 1e9
    rows = sum(len(reading.rows) for reading in readings)
    return Collected(tuple(readings), Health(not error, seconds, rows, error[:500]), bug)
