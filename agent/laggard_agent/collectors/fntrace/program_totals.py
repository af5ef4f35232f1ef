"""Totals over all processes of a program by function, in a bounded number of rows.

Counters never decrease: the counts of ended processes remain, and a function that loses its row to a busier
one continues in the row `program/other`, its own row frozen until it returns.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from laggard_agent.collectors.fnprofile.functions import OTHERS, other_of
from laggard_agent.collectors.rows import named
from laggard_common.wire.schema import Component

MOST_KNOWN = 8192  # remembered functions, with or without a row
MOST_PROGRAMS = 256
_MOST = 2**63 - 1
_CLEARLY = 2  # factor by which a function must be busier to replace another


@dataclass(slots=True)
class _Function:
    """`recent_ns`: recent self time, halved at every ranking."""

    component: Component
    row: tuple[int, int] = (0, 0)
    recent_ns: int = 0
    has_row: bool = False

    def add(self, calls: int, self_ns: int) -> None:
        if calls or self_ns:
            self.row = (min(self.row[0] + calls, _MOST), min(self.row[1] + self_ns, _MOST))


class Totals:
    """The rows of a node: at most `max_functions`, and one for the others of each program.

    A row is (calls, self ns); an unchanged row is the same object.
    """

    def __init__(self, max_functions: int) -> None:
        self._max = max_functions
        self._functions: dict[str, _Function] = {}
        self._others: dict[str, _Function] = {}
        self._rows_used = 0
        self._shown: list[_Function] = []
        self.components: tuple[Component, ...] = ()

    @property
    def without_row(self) -> int:
        """Number of functions counted among the others of their program."""
        return len(self._functions) - self._rows_used

    def rows(self) -> list[tuple[int, int]]:
        """One row for each of `components`."""
        return [function.row for function in self._shown]

    def add(self, rises: Mapping[str, tuple[int, int]]) -> None:
        """Adds increases by function id. The busiest new functions get the free rows."""
        known = len(self._functions), len(self._others), self._rows_used
        for id_, (calls, self_ns) in sorted(rises.items(), key=lambda rise: (-rise[1][1], -rise[1][0])):
            function = self._function(id_)
            if function is not None:
                function.recent_ns += self_ns
                if not function.has_row and self._rows_used < self._max:
                    function.has_row = True
                    self._rows_used += 1
            if function is None or not function.has_row:
                function = self._other(id_)
            function.add(calls, self_ns)
        if known != (len(self._functions), len(self._others), self._rows_used):
            self._show()

    def rank(self) -> None:
        """Gives rows to functions that were recently clearly busier than some with a row."""
        ranked = sorted(self._functions.values(), key=lambda function: function.recent_ns)
        holding = (function for function in ranked if function.has_row)
        changed = False
        for new in [function for function in reversed(ranked) if not function.has_row]:
            old = next(holding, None)
            if old is None or new.recent_ns <= _CLEARLY * old.recent_ns:
                break
            new.has_row, old.has_row, changed = True, False, True
        for function in ranked:
            function.recent_ns //= 2
        if changed:
            self._show()

    def _function(self, id_: str) -> _Function | None:
        """The function; None for the others of a program, and beyond the limit of remembered functions."""
        function = self._functions.get(id_)
        if function is None and len(self._functions) < MOST_KNOWN and id_ != other_of(id_):
            function = self._functions[id_] = _Function(named(id_))
        return function

    def _other(self, id_: str) -> _Function:
        home = other_of(id_)
        if home not in self._others and len(self._others) >= MOST_PROGRAMS:
            home = OTHERS
        return self._others.setdefault(home, _Function(named(home)))

    def _show(self) -> None:
        with_row = [function for function in self._functions.values() if function.has_row]
        self._shown = [*with_row, *self._others.values()]
        self.components = tuple(function.component for function in self._shown)
