"""Arrays of a group's components, a column each, kept by name while components come and go."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.detect.interface import FloatArray


class Columns:
    """Named float64 arrays of shape (*, N), one column a component, 0 where it is new.

    `shapes`: by name, the shape of what is kept of one component.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.names: list[str] = []
        self._shapes = dict(shapes)
        self._arrays: dict[str, FloatArray] = {name: np.zeros((*shape, 0)) for name, shape in shapes.items()}
        self._rows: dict[str, int] = {}
        self._last: tuple[Sequence[str], NDArray[np.intp]] = ((), np.zeros(0, dtype=np.intp))

    def __getitem__(self, name: str) -> FloatArray:
        return self._arrays[name]

    def places(self, components: Sequence[str]) -> NDArray[np.intp]:
        """The columns of `components`, made where they are new; cheap when asked again for the same ones."""
        if self._last[0] is not components:
            new = [name for name in components if name not in self._rows]
            self._rows.update(zip(new, range(len(self.names), len(self.names) + len(new)), strict=True))
            self.names.extend(new)
            for name, array in self._arrays.items():
                self._arrays[name] = np.pad(array, (*((0, 0),) * (array.ndim - 1), (0, len(new))))
            places = np.fromiter(map(self._rows.__getitem__, components), np.intp, len(components))
            self._last = (components, places)
        return self._last[1]

    def forget(self, components: Collection[str]) -> None:
        """Frees the columns of `components`."""
        kept = np.array([row for row, name in enumerate(self.names) if name not in components], dtype=np.intp)
        self.names = [self.names[row] for row in kept]
        self._rows = {name: row for row, name in enumerate(self.names)}
        self._arrays = {name: array[..., kept] for name, array in self._arrays.items()}
        self._last = ((), np.zeros(0, dtype=np.intp))

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` goes on exactly."""
        return {"names": list(self.names), **{name: array.tolist() for name, array in self._arrays.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`. Raises ValueError, TypeError or KeyError on any other."""
        self.names = [str(name) for name in state["names"]]
        self._rows = {name: row for row, name in enumerate(self.names)}
        for name, shape in self._shapes.items():
            array = np.array(state[name], dtype=np.float64)
            self._arrays[name] = array.reshape((*shape, len(self.names)))
        self._last = ((), np.zeros(0, dtype=np.intp))
