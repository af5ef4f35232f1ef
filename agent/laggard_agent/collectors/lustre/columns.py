"""Columns of one table, which only grow, and rows built from files of known shape."""

from collections.abc import Callable, Sequence

from laggard_agent.collectors.lustre.template_cache import Shape, Values, getter
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_FIELDS
from laggard_common.wire.schema import Field, FieldKind

Shown = tuple[Shape | None, ...]  # of one component, one entry per file of the table

_ZERO = 0
_NONE = 1
_BEFORE_VALUES = 2  # [0, None, values of the first file, of the second, ...]
_MOST_PLANS = 4096


class Columns:
    """Fields in order of first appearance, and the way to fill them.

    A counter missing from a fully parsed file never counted: it is 0. For a file that is missing or was not
    fully parsed, missing counters are None.
    """

    def __init__(self) -> None:
        self.fields: tuple[Field, ...] = ()
        self._at: dict[str, int] = {}
        self._file_of: list[int] = []
        self._refused: dict[Shown, tuple[bytes, ...]] = {}
        self._plans: dict[Shown, Callable[[Sequence[int | None]], Row] | None] = {}

    def learn(self, shapes: Shown) -> tuple[bytes, ...]:
        """Adds the fields of a component's files; returns those that contradict existing fields."""
        refused = self._refused.get(shapes)
        if refused is None:
            if len(self._refused) >= _MOST_PLANS:
                self._refused.clear()
            refused = self._refused[shapes] = tuple(self._take(shapes))
        return refused

    def row(self, shapes: Shown, found: Sequence[Values]) -> Row:
        """The row of a component whose shapes were learnt; `found`: values of the files present."""
        try:
            plan = self._plans[shapes]
        except KeyError:
            plan = self._plan(shapes)
        if plan is None:  # one file that has all fields in order
            return found[0]
        values: list[int | None] = [0, None]
        for part in found:
            values += part
        return plan(values)

    def _take(self, shapes: Shown) -> list[bytes]:
        refused = []
        new = list(self.fields)
        for file, shape in enumerate(shapes):
            for field in shape.fields if shape else ():
                at = self._at.get(field.name)
                if at is None and len(new) < MAX_FIELDS:
                    self._at[field.name] = len(new)
                    self._file_of.append(file)
                    new.append(field)
                elif at is None:
                    refused.append(f"({field.name}: too many fields)".encode())
                elif new[at] != field or self._file_of[at] != file:
                    refused.append(f"({field.name}: in {field.unit}, was in {new[at].unit})".encode())
        if len(new) > len(self.fields):
            self.fields = tuple(new)
            self._plans.clear()
        return refused

    def _plan(self, shapes: Shown) -> Callable[[Sequence[int | None]], Row] | None:
        starts = []
        end = _BEFORE_VALUES
        for shape in shapes:
            starts.append(end)
            end += len(shape.fields) if shape else 0
        here = [{f: i for i, f in enumerate(shape.fields)} if shape else {} for shape in shapes]
        named = {field.name for fields in here for field in fields}
        places = []
        for field, file in zip(self.fields, self._file_of, strict=True):
            shape = shapes[file]
            at = here[file].get(field)
            if at is not None:
                places.append(starts[file] + at)
            elif (
                shape is not None
                and shape.complete
                and field.kind is not FieldKind.GAUGE
                and field.name not in named
            ):
                places.append(_ZERO)
            else:
                places.append(_NONE)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        identity = len(shapes) == 1 and places == list(range(_BEFORE_VALUES, end))
        plan = None if identity else getter(places)
        self._plans[shapes] = plan
        return plan
