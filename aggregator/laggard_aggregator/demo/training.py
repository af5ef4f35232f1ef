"""Trains `cdf` on the recording's healthy minutes."""

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from laggard_aggregator.demo.recording import Recording
from laggard_aggregator.demo.site import LUNS_CDF, WINDOW_SAMPLES, Site
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.thresholds import Thresholds
from laggard_aggregator.metrics.block import BLOCK
from laggard_aggregator.metrics.definition import Differences
from laggard_aggregator.offline.sample_grid import Grid, windows_in_order
from laggard_aggregator.settings import thresholds_file

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

    `components`: component name of each LUN. Awaits are (LUNs, whole shifts), NaN from the fault on.
    """
    healthy = recording.healthy()
    rows = [[sample.rows[lun].split()[3:] for sample in healthy] for lun in recording.luns]
    counters = np.array(rows, dtype=np.int64)
    seconds = np.diff([sample.time for sample in healthy])
    of_await = BLOCK.kept(["await"])[0]["await"]
    await_ms = np.stack(
        [
            of_await.derive(Differences(COUNTERS[: rises.shape[1]], rises, seconds))
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


def train(recording: Recording, site: Site) -> None:
    """Writes thresholds for `cdf`, trained as `laggard train` does (Intrepid 4.2.1).

    Windows shift by one sample, as only three minutes are available where the paper has a day.
    """
    components = {lun: site.component(lun) for lun in recording.luns}
    grid = healthy_grid(recording, components, LUNS_CDF, round(site.tick_seconds * 1e9), 1)
    detector = registry.find("cdf")
    assert detector.training is not None
    options = {option.name: option.default for option in detector.training.options}
    settings = DetectSettings(detector=detector.name, interval_seconds=site.tick_seconds)
    history = {grid.group: detector(settings, "await").history_samples}
    windows = windows_in_order([grid], WINDOW_SAMPLES, history)
    trained = detector.training.learn(lambda: ((window, settings) for window in windows), options)
    thresholds_file.save(
        site.thresholds_toml,
        Thresholds(
            detector=detector.name,
            version=detector.version,
            trained=datetime.now(UTC).isoformat(timespec="seconds"),
            sources=["the recording's healthy minutes"],
            interval_seconds=site.tick_seconds,
            window_samples=WINDOW_SAMPLES,
            groups=trained.thresholds,
            options=options,
        ),
    )
