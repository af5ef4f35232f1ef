"""Registry of the collectors: a folder each, whose class registers itself when it is imported.

The folder `<name>/` has `collector.py` with a class as `CollectorClass` says. An agent imports only the
folders of enabled collectors, and of those that the configuration has a table for.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from laggard_agent import collectors
from laggard_agent.collectors.interface import Collector, Context, Now, Roots
from laggard_common.clock import Clock
from laggard_common.wire.schema import Field


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


@cache
def names() -> tuple[str, ...]:
    """Names of all collectors, which are their folders, in alphabetical order; imports none."""
    return tuple(sorted(folder.name for folder in pkgutil.iter_modules(collectors.__path__) if folder.ispkg))


def find(name: str) -> CollectorClass:
    """The class of the collector `name`, one of `names`; imports its folder."""
    if name not in _registered:
        importlib.import_module(f"{collectors.__name__}.{name}.collector")
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
