"""The zone of times that name none."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from laggard_common.errors import ConfigError


def find_zone(name: str | None) -> ZoneInfo | None:
    """The zone `name`; None without one. Raises ConfigError."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        problem = f"--timezone: {name}: no such time zone, expected one such as Europe/Berlin"
        raise ConfigError("", [problem]) from exc


class LocalClock:
    """Epoch seconds of the local times of one file, in order, in `zone`."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._last = float("-inf")

    def epoch(self, local: datetime) -> float:
        """Of an hour that the end of summer time repeats, the later one where the earlier one would fall."""
        first, second = (local.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        seconds = first.timestamp()
        if seconds < self._last <= second.timestamp():
            seconds = second.timestamp()
        self._last = seconds
        return seconds
