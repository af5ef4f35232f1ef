"""The recording's healthy minutes as a grid, for the training that `cdf` needs before it can judge."""

from collections.abc import Mapping

import numpy as np

from laggard_aggregator.demo.recording import Recording
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences
from laggard_aggregator.offline.grid import Grid

COUNTERS = (
    *("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms"),
    *("in_flight", "io_ms", "weighted_ms"),
    *("dc_ios", "dc_merges", "dc_sectors", "dc_ms", "fl_ios", "fl_ms"),
)
"""A row's columns after the name (Documentation/admin-guide/iostats.rst)."""


def healthy_grid(
    recording: Recording, components: Mapping[str, str], group: str, interval_ns: int, shift_samples: int
) -> Grid:
    """Await of every LUN before the fault, a recorded second an interval of `interval_ns`.

    `components`: what the aggregator calls each LUN. Awaits are (LUNs, whole shifts), NaN from the fault on.
    """
    healthy = recording.healthy()
    rows = [[sample.rows[lun].split()[3:] for sample in healthy] for lun in recording.luns]
    counters = np.array(rows, dtype=np.int64)
    seconds = np.diff([sample.time for sample in healthy])
    await_ms = np.stack(
        [
            BLOCK.metrics["await"].derive(Differences(COUNTERS[: rises.shape[1]], rises, seconds))
            for rises in np.diff(counters, axis=1)
        ]
    )
    blocks = -(-await_ms.shape[1] // shift_samples)
    padded = np.full((len(recording.luns), blocks * shift_samples), np.nan)
    padded[:, : await_ms.shape[1]] = await_ms
    return Grid(
        group=group,
        components=tuple(components[lun] for lun in recording.luns),
        interval_ns=interval_ns,
        block_samples=shift_samples,
        blocks=np.arange(blocks, dtype=np.int64),
        metrics={"await": padded},
    )
