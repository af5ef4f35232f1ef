"""Arrays of a group's components, a column each, kept by name while components come and go."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.intp]
"""ComponentArrays of a window's components."""


class ComponentArrays:
    """Float64 arrays of shape (*, N) as attributes, one column a component, 0 where it is new.

    `SHAPES`: by attribute, the shape of one component's.
    """

    SHAPES: ClassVar[Mapping[str, tuple[int, ...]]]

    def __init__(self) -> None:
        self.names: list[str] = []
        for name, shape in self.SHAPES.items():
            setattr(self, name, np.zeros((*shape, 0)))
        self._rows: dict[str, int] = {}
        self._last: tuple[Sequence[str], Places] = ((), np.zeros(0, dtype=np.intp))

    def places(self, components: Sequence[str]) -> Places:
        """The columns of `components`, made where they are new; cheap when asked again for the same ones."""
        if self._last[0] is not components:
            new = [name for name in components if name not in self._rows]
            self._rows.update(zip(new, range(len(self.names), len(self.names) + len(new)), strict=True))
            self.names.extend(new)
            for name in self.SHAPES:
                before = getattr(self, name)
                setattr(self, name, np.pad(before, (*((0, 0),) * (before.ndim - 1), (0, len(new)))))
            places = np.fromiter(map(self._rows.__getitem__, components), np.intp, len(components))
            self._last = (components, places)
        return self._last[1]

    def forget(self, components: Collection[str]) -> None:
        """Frees the columns of `components`."""
        kept = np.array([row for row, name in enumerate(self.names) if name not in components], dtype=np.intp)
        self.names = [self.names[row] for row in kept]
        self._rows = {name: row for row, name in enumerate(self.names)}
        for name in self.SHAPES:
            setattr(self, name, getattr(self, name)[..., kept])
        self._last = ((), np.zeros(0, dtype=np.intp))

    def state(self) -> dict[str, Any]:
        """Plain data from which `restored` goes on exactly."""
        return {"names": list(self.names), **{name: getattr(self, name).tolist() for name in self.SHAPES}}

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Itself, going on from `state`, an array that an earlier version lacks from 0.

        Raises ValueError, TypeError or KeyError on any other.
        """
        self.names = [str(name) for name in state["names"]]
        self._rows = {name: row for row, name in enumerate(self.names)}
        for name, extra in self.SHAPES.items():
            shape = (*extra, len(self.names))
            values = np.array(state.get(name, np.zeros(shape)), dtype=np.float64)
            setattr(self, name, values.reshape(shape))
        self._last = ((), np.zeros(0, dtype=np.intp))
        return self
