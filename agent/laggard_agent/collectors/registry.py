"""Registry of the collectors: a folder each, whose class registers itself when it is imported.

The folder `<name>/` has `collector.py` with a class as `CollectorClass` says; so has a package of others that
has an entry point of the group EXTENSIONS. An agent imports only the folders of enabled collectors, and of
those that the configuration has a table for.
"""

import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from laggard_agent import collectors
from laggard_agent.collectors.interface import Collector, Context, Now, Roots
from laggard_common.clock import Clock
from laggard_common.errors import ConfigError
from laggard_common.extensions import extensions, load
from laggard_common.wire.schema import Field

EXTENSIONS = "laggard.collectors"


class CollectorClass(Protocol):
    """Declarations of a collector's class.

    `name`: of its folder, and of its table in agent.toml. `settings`: the dataclass of that table, with
    defaults and checks. `sources`: by source, the fields that its readings always have.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def settings(self) -> type[Any]: ...  # noqa: D102

    @property
    def sources(self) -> Mapping[str, Sequence[Field]]: ...  # noqa: D102

    def __call__(self, settings: Any, context: Context, /) -> Collector:
        """The collector of a node. Reads nothing yet."""
        ...


C = TypeVar("C", bound=CollectorClass)

_registered: dict[str, CollectorClass] = {}


def register(collector: C) -> C:
    """Class decorator: makes the collector known under its name."""
    _registered[collector.name] = collector
    return collector


def _packages() -> Mapping[str, str]:
    """The package of each collector by name; Laggard's own go before those of others."""
    folders = (folder.name for folder in pkgutil.iter_modules(collectors.__path__) if folder.ispkg)
    return {**extensions(EXTENSIONS), **{name: f"{collectors.__name__}.{name}" for name in folders}}


@cache
def names() -> tuple[str, ...]:
    """Names of all collectors, in alphabetical order; imports none."""
    return tuple(sorted(_packages()))


def find(name: str) -> CollectorClass:
    """The class of the collector `name`, one of `names`; imports its folder. Raises ConfigError."""
    if name not in _registered:
        package = _packages()[name]
        load(package, "collector")
        if name not in _registered:
            raise ConfigError("", [f"the extension {package} registers no collector {name}"])
    return _registered[name]


def settings_class(name: str) -> type[Any]:
    """The dataclass of the collector's table."""
    return find(name).settings


def make_collector(name: str, tables: Mapping[str, Any], roots: Roots, now: Now, clock: Clock) -> Collector:
    """The collector `name`, one of `names`; its settings are in `tables` if they are not the defaults.

    `now`: nanoseconds since the epoch, the time that readings carry.
    """
    made = find(name)
    return made(tables.get(name) or made.settings(), Context(roots, now, clock.monotonic_ns))
