"""Reports of collectors about themselves: a row of their own, a message while nothing is found, failures."""

import logging
from collections.abc import Sequence

from laggard_agent.collectors.interface import Reading
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.schema import Component, Field


class OwnRow:
    """The one row of `source`, whose component has the name `name`; the same object while its values stay."""

    def __init__(self, source: str, fields: tuple[Field, ...], name: str = "") -> None:
        self._source = source
        self._fields = fields
        self._components = (Component(name or source, name or source),)
        self._row: Row = ()

    def reading(self, at_ns: int, row: Row) -> Reading:
        """The reading with `row`."""
        if row != self._row:
            self._row = row
        return Reading(self._source, self._fields, at_ns, self._components, [self._row])


class OnceLogged:
    """A warning that is logged when a state begins, and again only after the state has ended."""

    def __init__(self, log: logging.Logger, collector: str) -> None:
        self._log = log
        self._collector = collector
        self._holds = False

    def update(self, holds: bool, text: str) -> None:
        """Logs `text` when `holds` becomes true."""
        if holds and not self._holds:
            self._log.warning("collector %s: %s", self._collector, text)
        self._holds = holds


def raise_first(failures: Sequence[CollectError]) -> None:
    """Raises the first of `failures`, with the number of the others; nothing without any."""
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise CollectError(failures[0].path, failures[0].reason + more) from failures[0]
