"""Registry of the notification channels: a folder of `notify` each, whose class registers itself on import.

It stands below the channels, since aggregator.toml has a table for each. It imports them by the names of
their folders, so that nothing else names a channel.
"""

import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from laggard_common.extensions import extensions, load

EXTENSIONS = "laggard.channels"
_NOTIFY = "laggard_aggregator.notify"
_FOLDER = Path(__file__).parents[1] / "notify"


C = TypeVar("C", bound=type[Any])
_registered: dict[str, Any] = {}


def register(channel: C) -> C:
    """Class decorator: adds a channel under its `name`, with the dataclass of its table, `settings_class`."""
    _registered[channel.name] = channel
    return channel


def names() -> list[str]:
    """Names of all channels, in order; imports no channel."""
    return sorted(load(package, "").NAME for package in _packages())


@cache
def channels() -> Mapping[str, Any]:
    """The classes of all channels by name; imports the module `channel` of each. Raises ConfigError."""
    for package in _packages():
        load(package, "channel")
    return dict(sorted(_registered.items()))


def _packages() -> list[str]:
    """Laggard's own folders, then the packages of others."""
    own = [f"{_NOTIFY}.{folder.name}" for folder in pkgutil.iter_modules([str(_FOLDER)]) if folder.ispkg]
    return [*own, *extensions(EXTENSIONS).values()]
