"""When another device came under an ID: its counters are not continued from those of the one before."""

from collections.abc import Hashable, Mapping

from laggard_common.wire.schema import Field, FieldKind

START_TIME = Field("start_time", FieldKind.GAUGE, "s")
_MOST_IDS = 4096


class Origins:
    """The devices by ID, also those that went.

    `changes`: the epoch second since when an ID belongs to another device, by ID.
    """

    def __init__(self) -> None:
        self._devices: dict[str, Hashable] = {}
        self.changes: dict[str, int] = {}

    def update(self, devices: Mapping[str, Hashable], now_ns: int) -> None:
        """Notes the device of each ID."""
        for id_, device in devices.items():
            before = self._devices.pop(id_, device)
            self._devices[id_] = device
            if device != before:
                self.changes[id_] = max(now_ns // 10**9, self.changes.get(id_, 0) + 1)
        while len(self._devices) > _MOST_IDS + len(devices):
            oldest = next(iter(self._devices))
            del self._devices[oldest]
            self.changes.pop(oldest, None)
