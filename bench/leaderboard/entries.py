"""The rows of the leaderboard: detectors with their settings, as published and as tuned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.leaderboard.ceph import Floors, ceph
from bench.leaderboard.csr import PUBLISHED as CSR_PUBLISHED
from bench.leaderboard.csr import csr
from bench.leaderboard.iaso import PUBLISHED_RATE, iaso, iaso_daily
from bench.leaderboard.kratos import PUBLISHED as KRATOS_PUBLISHED
from bench.leaderboard.kratos import kratos
from bench.leaderboard.openzfs import openzfs
from bench.leaderboard.peers import hdfs, mad_score, z_score
from bench.leaderboard.perseus import COMPARISON, Options, perseus
from bench.leaderboard.perseus import PUBLISHED as PERSEUS_PUBLISHED
from bench.leaderboard.product import Product, known, own_first_day
from bench.leaderboard.series import Scores, Series
from bench.leaderboard.threshold import PUBLISHED as LATENCY_PUBLISHED
from bench.leaderboard.threshold import threshold
from laggard_aggregator.detect.settings import ByMetric, DetectSettings

Score = Callable[[Series], Scores]
TUNED = None


@dataclass(frozen=True)
class Entry:
    """A row: `score` with the threshold of alarms and that of windows.

    `threshold`: TUNED for the best of each cluster, chosen on the labels. `windows`: TUNED for the same as
    that of alarms. `look_back`: training, or how much of the past a verdict needs. `needs_load`: cannot judge
    without.
    """

    name: str
    score: Score
    look_back: str
    threshold: float | None = 1.0
    windows: float | None = 1.0
    needs_load: bool = False


PERSEUS = partial(perseus, options=Options())
PERSEUS_COMPARISON = partial(perseus, options=COMPARISON)
LABELS = "threshold from the labels"
SHARE, SCALED = 6 / 15, "15 days, threshold scaled to 6"
"""Published thresholds are of 15 days; the PERSEUS drives have six or seven."""


def published() -> list[Entry]:
    """The rows of other detectors."""
    return [
        Entry("threshold, 50 us", threshold, "none", LATENCY_PUBLISHED, LATENCY_PUBLISHED),
        Entry("threshold, tuned", threshold, LABELS, TUNED, TUNED),
        Entry("z-score above 3", z_score, "none", 3.0, 3.0),
        Entry("z-score, tuned", z_score, LABELS, TUNED, TUNED),
        Entry("MAD score above 3.5", mad_score, "none", 3.5, 3.5),
        Entry("MAD score, tuned", mad_score, LABELS, TUNED, TUNED),
        Entry("HDFS, without its floor", hdfs, "none"),
        Entry("CSR", csr, "1 of 15 days, labels made of 3 sigma", CSR_PUBLISHED, needs_load=True),
        Entry("IASO's idea, each minute", iaso, "10 minutes"),
        Entry("IASO's idea, 0.3 of 7 days", iaso_daily, "7 days", PUBLISHED_RATE),
        Entry("IASO's idea, tuned", iaso_daily, f"7 days, {LABELS}", TUNED),
        Entry("PERSEUS, 50 points", PERSEUS, "15 days", PERSEUS_PUBLISHED, needs_load=True),
        Entry("PERSEUS, tuned", PERSEUS, f"15 days, {LABELS}", TUNED, needs_load=True),
        Entry(
            "PERSEUS at 95 %, 50 points", PERSEUS_COMPARISON, "15 days", PERSEUS_PUBLISHED, needs_load=True
        ),
        Entry(
            "PERSEUS at 95 %, 20 points",
            PERSEUS_COMPARISON,
            SCALED,
            PERSEUS_PUBLISHED * SHARE,
            needs_load=True,
        ),
        Entry("PERSEUS at 95 %, tuned", PERSEUS_COMPARISON, f"15 days, {LABELS}", TUNED, needs_load=True),
        Entry("Kratos, 1,000 points", kratos, "15 days", KRATOS_PUBLISHED),
        Entry("Kratos, 400 points", kratos, SCALED, KRATOS_PUBLISHED * SHARE),
        Entry("Kratos, tuned", kratos, f"15 days, {LABELS}", TUNED),
        Entry("OpenZFS, insensitivity 50", openzfs, "none"),
        Entry("OpenZFS, insensitivity 2", partial(openzfs, insensitivity=2.0), "none"),
        Entry("Ceph's proposal", partial(ceph, floors=Floors()), "3 checks"),
        Entry("Ceph's proposal, no floors", partial(ceph, floors=Floors(0.0, 0.0)), "3 checks"),
    ]


def own(settings: DetectSettings, healthy: Mapping[str, ByMetric] | None = None) -> list[Entry]:
    """The rows of Laggard's detectors; `healthy`: thresholds of `cdf` by group, learned on healthy hosts."""
    cdf = replace(settings, detector="cdf")
    rows = [
        Entry("**Laggard** (`laggard`)", Product(settings), "none"),
        Entry("Laggard `cdf`, own first day", Product(cdf, own_first_day), "a day, called healthy"),
    ]
    if healthy is not None:
        trained = Product(cdf, known(healthy))
        rows.append(Entry("Laggard `cdf`, healthy hosts", trained, "a day of hosts known to be healthy"))
    return rows


def usable(entries: Sequence[Entry], *, with_load: bool) -> list[Entry]:
    """The entries that can judge such data."""
    return [entry for entry in entries if with_load or not entry.needs_load]
