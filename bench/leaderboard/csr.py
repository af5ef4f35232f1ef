"""CSR: drives ranked by how soon they will err, by boosted trees.

Source: Xu et al., "Improving Service Availability of Cloud Systems by Predicting Disk Error" (ATC '18):
cost-sensitive ranking by FastTree on SMART and system counters, the first r drives being replaced, r by the
least cost. On latency and throughput alone as in the comparisons by the FSA benchmark and by Kratos' authors:
a drive errs where more than half of 3 minutes lie 3 standard deviations above the node's mean latency of the
day, or below its mean throughput. Half of the day's intervals, drawn at random, train; six figures of each
drive (mean, least and deviation of throughput; mean, largest and deviation of latency) rank it in the other
half, and as many drives are reported as erred in the first. Trees are stumps here, 100 of them with a rate of
0.2; a node has too few drives for more.
"""

import numpy as np

from bench.leaderboard.series import Scores, Series
from bench.leaderboard.threshold import rolling_means
from laggard_aggregator.detect.interface import BoolArray, FloatArray

DEVIATIONS = 3.0
ERROR_SECONDS, ERROR_SHARE = 180.0, 0.5
ROUNDS, RATE = 100, 0.2
PUBLISHED, LOOK_BACK_DAYS = 1.0, 15
SEED = 41


def errors(latency: FloatArray, load: FloatArray, samples: int) -> BoolArray:
    """Which drive errs in which interval, (C, T), looking back on `samples` intervals, not on fewer."""
    high = latency > float(np.nanmean(latency) + DEVIATIONS * np.nanstd(latency, ddof=1))
    low = load < max(float(np.nanmean(load) - DEVIATIONS * np.nanstd(load, ddof=1)), 0.0)
    known = np.isfinite(latency)
    slow, idle = (rolling_means(np.where(known, one, np.nan), samples) for one in (high, low))
    erring: BoolArray = (slow > ERROR_SHARE) | (idle > ERROR_SHARE)
    erring[:, : samples - 1] = False
    return erring


def figures(latency: FloatArray, load: FloatArray) -> FloatArray:
    """What a drive is ranked by, (C, 6); both inputs (C, T)."""
    of_load = (np.nanmean(load, axis=1), np.nanmin(load, axis=1), np.nanstd(load, axis=1))
    of_latency = (np.nanmean(latency, axis=1), np.nanmax(latency, axis=1), np.nanstd(latency, axis=1))
    return np.column_stack([*of_load, *of_latency])


def boosted_ranks(train: FloatArray, soon: FloatArray, test: FloatArray, rounds: int = ROUNDS) -> FloatArray:
    """Scores of the rows of `test` (N, F), higher for what errs sooner, learned from `train` (M, F).

    Gradient boosting of the pairwise logistic loss (RankNet, Burges et al. 2005): each round adds the stump
    that lowers it most by Newton's step. `soon` (M,) is higher for what erred sooner; ties make no pair.
    """
    above = (soon[:, None] > soon[None, :]).astype(np.float64)
    order = np.argsort(train, axis=0, kind="stable")
    ordered = np.take_along_axis(train, order, axis=0)
    splits = ordered[:-1] < ordered[1:]
    own, ranked = np.zeros(len(train)), np.zeros(len(test))
    if not above.any() or not splits.any():
        return ranked
    for _ in range(rounds):
        wrong = above / (1.0 + np.exp(own[:, None] - own[None, :]))
        pull = wrong.sum(axis=1) - wrong.sum(axis=0)
        weight = wrong * (1.0 - wrong)
        curve = weight.sum(axis=1) + weight.sum(axis=0) + 1e-9
        left, left_curve = np.cumsum(pull[order], axis=0)[:-1], np.cumsum(curve[order], axis=0)[:-1]
        right, right_curve = pull.sum() - left, curve.sum() - left_curve
        gain = np.where(splits, left**2 / (left_curve + 1) + right**2 / (right_curve + 1), -np.inf)
        row, feature = np.unravel_index(int(gain.argmax()), gain.shape)
        cut = ordered[row : row + 2, feature].mean()
        low = RATE * left[row, feature] / (left_curve[row, feature] + 1)
        high = RATE * right[row, feature] / (right_curve[row, feature] + 1)
        own += np.where(train[:, feature] <= cut, low, high)
        ranked += np.where(test[:, feature] <= cut, low, high)
    return ranked


def day_reports(latency: FloatArray, load: FloatArray, samples: int, rng: np.random.Generator) -> FloatArray:
    """1 for each drive that is reported on a day, else 0; (C,), of inputs (C, T)."""
    reports = np.zeros(len(latency))
    drawn = rng.random(latency.shape[1]) < 0.5
    known = np.isfinite(latency) & np.isfinite(load)
    there = np.flatnonzero(known[:, drawn].any(axis=1) & known[:, ~drawn].any(axis=1))
    if there.size < 2:
        return reports
    latency, load = (np.where(known, values, np.nan)[there] for values in (latency, load))
    erring = errors(latency, load, samples)[:, drawn]
    erred = erring.any(axis=1)
    soon = np.where(erred, -erring.argmax(axis=1).astype(np.float64), -np.inf)
    train, test = (figures(latency[:, half], load[:, half]) for half in (drawn, ~drawn))
    first = np.argsort(-boosted_ranks(train, soon, test), kind="stable")[: int(erred.sum())]
    reports[there[first]] = 1.0
    return reports


def csr(series: Series) -> Scores:
    """On how many of the last 15 days the drive was reported; all windows of a day have the day's report."""
    if series.load is None:
        raise ValueError("CSR needs the load of the drives")
    rng, samples = np.random.default_rng(SEED), series.samples(ERROR_SECONDS)
    reports = np.column_stack(
        [day_reports(series.latency[:, day], series.load[:, day], samples, rng) for day in series.days]
    )
    sums = series.over_days(reports, LOOK_BACK_DAYS)
    return Scores(series.after_days(sums), reports[:, series.window_days()])
