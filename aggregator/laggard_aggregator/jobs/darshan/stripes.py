"""OSTs that the bytes of files lie on, of plain and of composite (progressive) layouts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan import tables
from laggard_aggregator.jobs.darshan.darshan_log import Layouts, ModuleRecords

_WITHOUT_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class FileStripes:
    """Stripe size of the first component, first OST, and the OSTs, each once."""

    size: int
    offset: int
    osts: list[int]


class StripesOfFiles:
    """Stripes of files by their id.

    Lustre gives a component of a composite layout its OSTs when a byte is written there, and Darshan records
    them when the file is opened. So a file lies on the OSTs of the components up to its highest byte; one
    that reaches beyond what any rank recorded lies on OSTs that the log does not tell, and has no stripes.
    """

    def __init__(self, layouts: Layouts | None, highest: Mapping[int, int]) -> None:
        self._of: dict[int, FileStripes] = {}
        if layouts is None:
            return
        ends: dict[int, int] = {}
        for file, (low, high) in zip(layouts.ids.tolist(), pairwise(layouts.first.tolist()), strict=True):
            known_end = max(map(_end, layouts.ends[low:high].tolist()), default=0)
            if known_end <= ends.get(file, 0):
                continue  # of several ranks' layouts of a file the longest counts
            ends[file] = known_end
            reached = highest.get(file, known_end - 1)
            osts = {
                ost
                for at in range(low, high)
                if layouts.begins[at] <= reached
                for ost in layouts.osts[layouts.stripes[at] : layouts.stripes[at + 1]].tolist()
                if ost >= 0
            }
            self._of.pop(file, None)
            if osts and reached < known_end:
                first = int(layouts.osts[layouts.stripes[low]])
                self._of[file] = FileStripes(int(layouts.sizes[low]), first, sorted(osts))

    def __iter__(self) -> Iterator[tuple[int, FileStripes]]:
        return iter(self._of.items())

    def columns(self, ids: NDArray[np.int64]) -> dict[str, Any]:
        """Stripe size, count and first OST, and the words of the bitmap; null for files without a layout."""
        known = [self._of.get(file) for file in ids.tolist()]
        is_none = np.array([stripes is None for stripes in known], bool)
        words = np.zeros((tables.OST_WORDS, len(known)), np.uint64)
        for at, stripes in enumerate(known):
            for ost in stripes.osts if stripes else ():
                if ost < tables.OST_WORDS * 64:
                    words[ost // 64, at] |= np.uint64(1) << np.uint64(ost % 64)
        arrays: dict[str, Any] = {
            "stripe_size": _masked([stripes.size if stripes else 0 for stripes in known], is_none),
            "stripe_count": _masked([len(stripes.osts) if stripes else 0 for stripes in known], is_none),
            "stripe_offset": _masked([stripes.offset if stripes else 0 for stripes in known], is_none),
        }
        for word, column in enumerate(tables.WORD_COLUMNS):
            arrays[column] = pa.array(words[word].view(np.int64), mask=is_none)
        return arrays


def highest_bytes(modules: Mapping[str, ModuleRecords]) -> dict[int, int]:
    """The highest byte of each file that any rank read or wrote, by its id; MPI-IO does not tell it."""
    highest: dict[int, int] = {}
    for module in modules.values():
        for name in ("MAX_BYTE_READ", "MAX_BYTE_WRITTEN"):
            if name in module.counters:
                for file, at in zip(module.ids.tolist(), module.counters[name].tolist(), strict=True):
                    highest[file] = max(highest.get(file, 0), at)
    return highest


def _end(end: int) -> int:
    """End of a component; the last one has all bits, or none, set."""
    return end if end > 0 else _WITHOUT_END


def _masked(values: list[int], is_none: NDArray[np.bool_]) -> pa.Array:
    return pa.array(np.array(values, np.int64), mask=is_none)
