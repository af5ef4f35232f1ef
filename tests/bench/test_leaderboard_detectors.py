"""Each detector finds a drive that nobody could miss, is silent on healthy ones, and computes right.

Values are worked out by hand from the sources; Kratos' are also held against the figures of its authors.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.accuracy.perseus import COLUMNS
from bench.leaderboard import ceph, csr, iaso, kratos, openzfs, peers, perseus, threshold
from bench.leaderboard.dbscan import largest_cluster
from bench.leaderboard.entries import TUNED, Entry, own, published
from bench.leaderboard.series import METRIC, Series
from laggard_aggregator.detect.interface import BoolArray, FloatArray
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.offline.run import read_grids
from laggard_aggregator.offline.sample_grid import Grid
from tests.support.shared_data import shared

SETTINGS = DetectSettings(window_samples=20, shift_samples=20, tests_at_once=12)
BASE = 10_000.0  # us: a disk, so that the floors of Ceph's proposal are within reach
FLASH = 20.0  # us: below the published threshold of 50
DAYS, BLOCKS_A_DAY, BLOCKS_BETWEEN = 12, 9, 288
ENTRIES = [entry for entry in (*own(SETTINGS), *published()) if entry.threshold is not TUNED]


def series_of(factor: float, base: float = BASE, group: str = "host") -> Series:
    """Twelve drives, twelve days of 45 minutes; from the second day on the first is `factor` times slower."""
    rng = np.random.default_rng(5)
    blocks = (np.arange(DAYS)[:, None] * BLOCKS_BETWEEN + np.arange(BLOCKS_A_DAY)).ravel() + 5_000_000
    shape = (12, blocks.size * 20)
    latency = base * rng.lognormal(0.0, 0.03, shape)
    latency[0, BLOCKS_A_DAY * 20 :] *= factor
    load = np.tile(rng.uniform(1e7, 2e7, shape[1]), (12, 1))
    names = tuple(f"disk{c}" for c in range(12))
    grid = Grid(group, names, 15 * 10**9, 20, blocks, {METRIC: latency}, {"throughput": load})
    return Series(grid)


def alarmed(entry: Entry, series: Series) -> list[int]:
    """Whose alarm stood at any time."""
    assert entry.threshold is not None
    return np.flatnonzero((entry.score(series).alarms >= entry.threshold).any(axis=1)).tolist()


def base_of(entry: Entry) -> float:
    return FLASH if "50 us" in entry.name else BASE


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_drive_forty_times_slower_is_found_and_no_other(entry: Entry) -> None:
    found = alarmed(entry, series_of(40.0, base_of(entry)))
    if "first day" in entry.name:  # its price: what exceeds an ordinary day by chance
        assert 0 in found
    else:
        assert found == [0]


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if "first day" not in e.name], ids=lambda entry: entry.name
)
def test_healthy_drives_raise_no_alarm(entry: Entry) -> None:
    assert alarmed(entry, series_of(1.0, base_of(entry))) == []


@pytest.mark.parametrize(
    "entry", [e for e in published() if e.threshold is TUNED], ids=lambda entry: entry.name
)
def test_a_tuned_detector_scores_the_slow_drive_above_all_others(entry: Entry) -> None:
    peaks = np.nanmax(entry.score(series_of(40.0)).alarms, axis=1)
    assert peaks[0] > peaks[1:].max()


@pytest.mark.parametrize("entry", [*own(SETTINGS), *published()], ids=lambda entry: entry.name)
def test_gaps_are_no_evidence(entry: Entry) -> None:
    series = series_of(1.0, base_of(entry))
    latency, load = series.grid.metrics[METRIC].copy(), series.grid.load["throughput"].copy()
    day = BLOCKS_A_DAY * 20
    latency[:, 2 * day : 3 * day] = np.nan  # nobody was sampled
    latency[:, 3 * day : 4 * day] = 0.0  # nobody had I/O
    latency[3, 4 * day : 7 * day] = np.nan
    load[4, 5 * day : 6 * day] = np.nan
    latency[5:, 7 * day : 8 * day] = np.nan  # five are left
    latency[2:, 8 * day : 9 * day] = np.nan  # two
    latency[0] = np.nan  # it never was there
    gappy = Series(replace(series.grid, metrics={METRIC: latency}, load={"throughput": load}))
    scores = entry.score(gappy)
    assert scores.alarms.shape == latency.shape
    if entry.threshold is not TUNED and "first day" not in entry.name:
        assert not (scores.alarms >= entry.threshold).any()
        assert not (scores.windows[0] >= 1.0).any()


def column(values: Sequence[float]) -> FloatArray:
    """Values of drives at one time, (C, 1)."""
    return np.array(values, dtype=np.float64)[:, None]


def test_scores_against_peers() -> None:
    # the most that a z-score of 5 can be: (n - 1) / sqrt(n)
    assert peers.z_scores(column([1, 1, 1, 1, 2]))[4, 0] == pytest.approx(4 / np.sqrt(5))
    # median 12, deviations 2, 1, 0, 1, 88: a MAD of 1
    values = column([10, 11, 12, 13, 100])
    assert peers.mad_scores(values)[4, 0] == pytest.approx(88 / 1.4826)
    assert peers.hdfs_ratios(values)[4, 0] == pytest.approx(100 / 36)  # 3 medians exceed 12 + 4.4
    assert np.isnan(peers.z_scores(column([1, 1, 1, 9]))).all()
    assert peers.mad_scores(column([1, 1, 1, 1, 2]))[:, 0].tolist() == [0, 0, 0, 0, np.inf]


def test_a_rolling_mean_passes_over_gaps() -> None:
    means = threshold.rolling_means(np.array([[1.0, 2.0, 3.0, np.nan, np.nan, 5.0]]), 2)
    np.testing.assert_allclose(means, [[1.0, 1.5, 2.5, 3.0, np.nan, 5.0]])


def test_the_fence_of_openzfs() -> None:
    fence, span = openzfs.fences(column([1, 2, 3, 4, 5, 100]), 50.0)
    assert (fence[0], span[0]) == (155.0, 3.0)  # quartiles 2 and 5
    fence, span = openzfs.fences(column([4, 4, 4, 4, 40]), 50.0)
    assert (fence[0], span[0]) == (922.0, 18.0)  # 4 and 22, the middle one in neither half
    fence, span = openzfs.fences(column([8] * 6), 50.0)
    assert (fence[0], span[0]) == (108.0, 2.0)  # a quarter of the lower quartile at least


@pytest.mark.parametrize(("slow", "last"), [(1000.0, 4), (117.0, 6)])
def test_openzfs_sits_a_drive_out_after_more_than_twenty_points(slow: float, last: int) -> None:
    # Beyond the fence of 108: five points a check at most, four for four ranges and a half. Each second check
    # takes two from all six: 5, 8, 13, 16, 21, and 4, 6, 10, 12, 16, 18, 22.
    latency = np.full((6, last + 7), 8.0)
    latency[2] = slow
    outliers, sitting = openzfs.sit_outs(latency, 50.0, 4)
    out = list(range(last, last + 4))
    assert np.flatnonzero(sitting[2]).tolist() == out
    assert np.flatnonzero(outliers[2]).tolist() == [t for t in range(last + 7) if t not in out[1:]]
    assert not sitting[[0, 1, 3, 4, 5]].any()


def test_openzfs_needs_five_children_and_a_latency_of_each() -> None:
    latency = np.full((6, 12), 8.0)
    latency[2] = 1000.0
    assert not openzfs.sit_outs(latency[:4], 50.0, 4)[0].any()
    latency[0, :] = np.nan
    assert not openzfs.sit_outs(latency, 50.0, 4)[0].any()


def test_openzfs_sits_no_more_children_out_than_there_is_parity() -> None:
    latency = np.full((16, 80), 8.0)
    latency[[1, 2, 3]] = [[1000.0], [1100.0], [1200.0]]
    sitting = openzfs.sit_outs(latency, 10.0, 40)[1]
    assert sitting.sum(axis=0).max() == 2


def test_the_scores_of_ceph() -> None:
    latency = column([10, 11, 12, 13, 100])
    assert ceph.osd_scores(latency, 0.0)[4, 0] == 88.0
    assert ceph.osd_scores(latency, 4.0)[4, 0] == 22.0
    slow = np.array([[True, True, True, False, True, False, False]])
    assert ceph.observations(slow).tolist() == [[1, 2, 3, 1, 2, 1, 0]]


def test_the_score_of_iaso_doubles_and_falls_by_addition() -> None:
    latency = np.array([[1.0] * 7, [1.0] * 7, [2, 2, 2, 2, np.nan, 1, 1]])
    scores = iaso.peer_scores(latency, 15.0)
    assert scores[2].tolist() == [2, 4, 8, 16, 16, 3.5, 1]  # 12.5 less in 15 s: 100 in 2 minutes
    assert scores[0].tolist() == [1.0] * 7


def test_iaso_knows_who_is_alone_above() -> None:
    assert iaso.apart(np.array([1.0, 1.0, 2.0, 50.0])).tolist() == [False, False, False, True]
    assert not iaso.apart(np.array([1.0, 1.0, 50.0, 52.0])).any()  # two are company
    assert not iaso.apart(np.array([1.0, 50.0, 51.0, 52.0])).any()  # alone, but below


def test_the_prediction_bound_of_perseus() -> None:
    # Six even loads leave one degree of freedom to a polynomial of degree 4: the residuals are a multiple of
    # the orthogonal polynomial of degree 5, whose squares sum up to 252: the fit is 10, the variance 252 / 1.
    fifth = np.array([-1.0, 5.0, -10.0, 10.0, -5.0, 1.0])
    keep = np.ones(6, dtype=np.bool_)
    bound = perseus.upper_bounds(np.linspace(0.0, 5e6, 6), 10.0 + fifth, keep, 0.95)
    leverage = 1.0 - fifth**2 / 252.0
    np.testing.assert_allclose(bound, 10.0 + 12.7062 * np.sqrt(252.0 * (1.0 + leverage)), rtol=1e-4)


def test_the_risks_of_perseus() -> None:
    assert [perseus.risk(6.0, minutes) for minutes in (29, 30, 60, 120)] == [0, 10, 25, 100]
    assert [perseus.risk(ratio, 120) for ratio in (0.9, 1.2, 2.0, 5.0)] == [0, 10, 25, 100]
    values = perseus.spans(np.array([[1.0, 2.0, 3.0, np.nan, 9.0, np.nan]]), 4, 0.5)
    assert values.tolist() == [[2.0, 9.0]]


def test_the_counts_and_the_divergence_of_kratos() -> None:
    # one of six that is far off lies 2.04 standard deviations above the mean: 5 / sqrt(6)
    latency = np.repeat([[0.99], [0.99], [0.99], [1.01], [1.01], [1.0]], 6, axis=1)
    latency[5] = [2, 2, 2, 1, 1, 2]
    latency[:5, 2] = [0.85, 0.85, 0.85, 1.15, 1.15]  # with more spread it is 1.93
    assert kratos.counts(latency)[5].tolist() == [1, 2, 1, 0, 0, 1]
    assert not kratos.counts(latency)[0].any()
    p, q = 0.9 + 1e-6, 1e-6  # nine of nine in one bin, over one more, and the smallest share
    expected = (p - q) / (p + 9 * q) * np.log(p / q)
    assert kratos.divergence(np.zeros(9), np.full(9, 10.0)) == pytest.approx(expected)
    assert kratos.divergence(np.zeros(9), np.zeros(9)) == 0.0


@pytest.mark.shared_data
def test_kratos_agrees_with_what_its_authors_published() -> None:
    """`kratos_scores.csv` of ucare-uchicago/kratos-failslow: cluster C, host 1, 2021-11-21."""
    path = shared("perseus_failslow/cluster_C__host_1.csv.xz")
    series = Series(read_grids([path], COLUMNS, SETTINGS)[0])
    assert series.load is not None
    day = series.days[0]
    walks = kratos.counts(series.latency[:, day] / series.load[:, day])
    own_counts = {
        name: walk[np.isfinite(walk)] for name, walk in zip(series.grid.components, walks, strict=True)
    }

    def total(name: str) -> float:
        return sum(
            kratos.divergence(own_counts[name], own_counts[other]) for other in own_counts if other != name
        )

    assert ((own_counts["disk1"] == 0).sum(), own_counts["disk1"].size, own_counts["disk1"].max()) == (
        673,
        721,
        6,
    )
    assert total("disk1") == pytest.approx(1.8760847864776964, rel=1e-12)
    assert total("disk10") == pytest.approx(5.3403143322790365, rel=1e-12)


@pytest.mark.parametrize(("slow", "erring"), [(6, []), (7, [11]), (8, [11, 12])])
def test_csr_calls_more_than_half_of_three_minutes_an_error(slow: int, erring: list[int]) -> None:
    latency = np.ones((10, 40))
    latency[4, :slow] = 100.0  # 3 standard deviations above the mean are 42 where 7 of 400 are slow
    errors = csr.errors(latency, np.ones_like(latency), 12)
    assert np.flatnonzero(errors[4]).tolist() == erring
    assert not np.delete(errors, 4, axis=0).any()


def test_a_round_of_boosting_takes_newtons_step() -> None:
    # One pair, at first with even odds: gradients 0.5 and -0.5, curvatures 0.25 + 1, a rate of 0.2.
    ranks = csr.boosted_ranks(np.array([[0.0], [1.0]]), np.array([1.0, 0.0]), np.array([[0.2], [0.8]]), 1)
    np.testing.assert_allclose(ranks, [0.08, -0.08], rtol=1e-6)


def naive_largest_cluster(points: FloatArray, distance: float, members: int) -> BoolArray:
    """DBSCAN as the paper tells it: grow each cluster from a core point."""
    apart = np.sqrt(((points[:, None] - points[None, :]) ** 2).sum(axis=2))
    core = (apart <= distance).sum(axis=1) >= members
    labels = np.full(len(points), -1)
    for seed in np.flatnonzero(core).tolist():
        if labels[seed] < 0:
            labels[seed], growing = seed, [seed]
            while growing:
                near = np.flatnonzero((apart[growing.pop()] <= distance) & core & (labels < 0))
                labels[near] = seed
                growing += near.tolist()
    for point in np.flatnonzero(~core):
        nearest = int(np.where(core, apart[point], np.inf).argmin())
        if core[nearest] and apart[point, nearest] <= distance:
            labels[point] = labels[nearest]
    largest: BoolArray = labels == np.bincount(labels[labels >= 0]).argmax()
    return largest


@pytest.mark.parametrize("seed", range(10))
def test_the_largest_cluster_is_that_of_dbscan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = (rng.normal(0, 1, (150, 2)), rng.normal(3, 0.2, (60, 2)), rng.uniform(-4, 4, (40, 2)))
    points, distance = np.vstack(parts), float(rng.uniform(0.15, 0.6))
    np.testing.assert_array_equal(
        largest_cluster(points, distance, 5), naive_largest_cluster(points, distance, 5)
    )


def test_clusters_are_joined_across_a_square_between_them() -> None:
    points = np.repeat([[0.70, 0.1], [1.69, 0.1], [9.0, 9.0]], [5, 5, 6], axis=0)  # squares of 0.71
    for turned in (points, points[:, ::-1]):
        assert np.flatnonzero(largest_cluster(turned, 1.0, 5)).tolist() == list(range(10))
    assert np.flatnonzero(largest_cluster(points, 0.98, 5)).tolist() == list(range(10, 16))
