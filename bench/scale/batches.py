"""Payloads of many nodes at once, byte for byte what the agent's encoder makes of the same counters."""

import numpy as np
import zstandard
from numpy.typing import NDArray

from bench.scale.shapes import Shape
from laggard_common.wire import codec

_RISES = {1: (1, 127), 2: (128, 4000)}
"""By how much counters rise in a tick, so that their differences take so many bytes."""
_MOST_BYTES = np.array(
    [
        (1, 2, 1, 1, 2, 1, 2, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1),
        (2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 1, 2, 2, 1, 1),
        (1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1),
        (1, 2, 1, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1),
    ]
)
"""How many bytes a difference of each field takes, in four kinds of load; a node is of one of them."""
LOADS = len(_MOST_BYTES)


class Batches:
    """The counters of all nodes of one shape, and payloads of what they rise by. All counters rise always."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self._rng = np.random.default_rng(seed)
        self._zstd = zstandard.ZstdCompressor(level=3, write_checksum=False, write_content_size=True)
        series = shape.components * shape.fields
        self._totals = self._rng.integers(0, 2**40, (shape.nodes, series))
        head = codec.HEADER.pack(0, shape.fields, shape.components, 0)
        indexes = np.arange(shape.components, dtype="<u4").tobytes()
        self._head = np.frombuffer(head + indexes, np.uint8)
        self._widths = np.tile(_MOST_BYTES[:, : shape.fields], shape.components)
        self._low = np.vectorize(lambda width: _RISES[width][0])(self._widths)
        self._high = np.vectorize(lambda width: _RISES[width][1])(self._widths)

    def next(self, nodes: NDArray[np.intp], ticks: int) -> list[bytes]:
        """The next payload of each of `nodes`, of so many ticks; each node once."""
        payloads: list[bytes] = [b""] * nodes.size
        for load in range(LOADS):
            chosen = np.flatnonzero(nodes % LOADS == load)
            if chosen.size:
                raw = self._raw(nodes[chosen], load, ticks)
                for at, row in zip(chosen.tolist(), raw, strict=True):
                    payloads[at] = self._zstd.compress(row)
        return payloads

    def values(self, nodes: NDArray[np.intp]) -> NDArray[np.int64]:
        """(len(nodes), series): where the counters stand after the payload made last."""
        return self._totals[nodes]

    def _raw(self, nodes: NDArray[np.intp], load: int, n: int) -> NDArray[np.uint8]:
        """(len(nodes), bytes): the payloads before compression."""
        m, widths = nodes.size, self._widths[load]
        rises = self._rng.integers(self._low[load], self._high[load], (m, n, widths.size), endpoint=True)
        first = self._totals[nodes] + rises[:, 0]
        self._totals[nodes] = first + rises[:, 1:].sum(axis=1)
        offsets = self._rng.integers(150, 900, (m, n), dtype=np.int32)
        blocks = [
            np.broadcast_to(self._head, (m, self._head.size)),
            _bytes(offsets, "<i4"),
            _bytes(first, "<i8"),
            np.broadcast_to(widths.astype(np.uint8), (m, widths.size)),
        ]
        blocks += [
            _bytes(rises[:, 1:, widths == width], f"<i{width}") for width in _RISES if (widths == width).any()
        ]
        return np.concatenate(blocks, axis=1)


def _bytes(values: NDArray[np.int64] | NDArray[np.int32], kind: str) -> NDArray[np.uint8]:
    rows: NDArray[np.uint8] = np.ascontiguousarray(values.reshape(len(values), -1).astype(kind)).view(
        np.uint8
    )
    return rows
