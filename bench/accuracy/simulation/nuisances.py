"""What happens to healthy components and must not be taken for a fault."""

import numpy as np
from scipy.signal import lfilter

from bench.accuracy.simulation.scenario import Array, Conditions, Scenario

EXPERIMENT_SECONDS = 3600.0
"""Runs shorter than this are experiments, in which rare events are made less rare."""


def add_nuisances(conditions: Conditions, scenario: Scenario, rng: np.random.Generator) -> None:
    """Peers that differ, slow noise, spikes, uneven load, hot files, idle phases, lost samples and resets."""
    seconds = scenario.samples * scenario.interval_seconds
    experiment = seconds < EXPERIMENT_SECONDS
    luns = scenario.shape.luns
    conditions.service *= peers_differ(luns, rng)
    conditions.service *= np.exp(slow_noise(scenario, 0.03, 120.0, rng))
    conditions.service *= spikes(scenario, 900.0 if experiment else 7200.0, 2.5, rng)
    conditions.service *= flushes(scenario, rng)
    conditions.service[scenario.samples // 2 :] *= scenario.workload.rewrite_factor
    weights = np.exp(rng.normal(0.0, scenario.workload.uneven, luns))
    conditions.popularity = weights / weights.sum()
    if scenario.workload.bursty:
        conditions.activity = bursts(scenario, rng)
        hot_files(conditions, scenario, rng)
    elif scenario.workload.stripe == 1:
        hot_files(conditions, scenario, rng)
    conditions.missing |= rng.random(conditions.missing.shape) < 0.002
    if experiment:
        if rng.random() < 0.1:
            first = int(rng.integers(scenario.samples))
            gap = slice(first, first + int(rng.integers(5, 21)))
            conditions.missing[gap, rng.integers(scenario.shape.servers)] = True
        resets = rng.random() < 0.02
    else:
        resets = rng.random() < 0.01 * scenario.shape.servers * seconds / 86400.0
    if resets:
        conditions.reset = (
            int(rng.integers(1, scenario.samples)),
            int(rng.integers(scenario.shape.servers)),
        )


def peers_differ(luns: int, rng: np.random.Generator) -> Array:
    """Lasting factors (L,): the slowest healthy LUN is 3 to 8 % slower than the fastest."""
    factors = rng.normal(0.0, 1.0, luns)
    factors *= np.log1p(rng.uniform(0.03, 0.08)) / np.ptp(factors)
    return np.exp(factors - np.median(factors))


def slow_noise(scenario: Scenario, sigma: float, tau_seconds: float, rng: np.random.Generator) -> Array:
    """First-order autoregressive noise (T, L), `sigma` about 0, correlated over `tau_seconds`."""
    keep = np.exp(-scenario.interval_seconds / tau_seconds)
    shape = (scenario.samples, scenario.shape.luns)
    steps = rng.normal(0.0, sigma * np.sqrt(1 - keep**2), shape)
    steps[0] /= np.sqrt(1 - keep**2)
    noise: Array = lfilter([1.0], [1.0, -keep], steps, axis=0)
    return noise


def spikes(scenario: Scenario, every_seconds: float, mean_seconds: float, rng: np.random.Generator) -> Array:
    """Garbage collection and retries: a LUN 2 to 6 times slower for some seconds, `every_seconds` or so."""
    seconds = scenario.samples * scenario.interval_seconds
    extra = np.zeros((scenario.samples, scenario.shape.luns))
    for lun in range(scenario.shape.luns):
        for _ in range(rng.poisson(seconds / every_seconds)):
            begin, length = rng.uniform(0, seconds), rng.exponential(mean_seconds)
            _overlap(extra[:, lun], scenario.interval_seconds, begin, length, rng.uniform(1.0, 5.0))
    return 1.0 + extra


def flushes(scenario: Scenario, rng: np.random.Generator) -> Array:
    """Every 30 s or so each server writes back its metadata: half a second at twice the service time."""
    seconds = scenario.samples * scenario.interval_seconds
    if scenario.interval_seconds >= 15.0:
        return np.ones((1, 1))
    extra = np.zeros((scenario.samples, scenario.shape.servers))
    for server in range(scenario.shape.servers):
        for begin in np.arange(rng.uniform(0, 30.0), seconds, 30.0):
            _overlap(extra[:, server], scenario.interval_seconds, float(begin), 0.5, 1.0)
    return np.repeat(1.0 + extra, scenario.shape.luns_per_server, axis=1)


def bursts(scenario: Scenario, rng: np.random.Generator) -> Array:
    """Activity (T,): bursts of 1 to some minutes between lulls in which hardly anything happens."""
    seconds = scenario.samples * scenario.interval_seconds
    experiment = seconds < EXPERIMENT_SECONDS
    activity = np.full(scenario.samples, 0.05)
    at = -rng.exponential(60.0)
    while at < seconds:
        burst = rng.gamma(2.0, 60.0)
        first, last = (
            int(max(at, 0) / scenario.interval_seconds),
            int(max(at + burst, 0) / scenario.interval_seconds),
        )
        activity[first : last + 1] = rng.uniform(0.5, 1.2)
        at += burst + rng.exponential(45.0 if experiment else 300.0)
    return activity


def hot_files(conditions: Conditions, scenario: Scenario, rng: np.random.Generator) -> None:
    """One LUN for a while gets up to three times its share: a hot file, not a fault."""
    seconds = scenario.samples * scenario.interval_seconds
    conditions.hot_lun = int(rng.integers(scenario.shape.luns))
    for _ in range(rng.poisson(seconds / 1200.0) if seconds < EXPERIMENT_SECONDS else rng.poisson(6)):
        begin = rng.uniform(0, seconds)
        share = rng.uniform(0.5, 2.0) / scenario.shape.luns
        _overlap(conditions.hot, scenario.interval_seconds, begin, rng.uniform(30.0, 240.0), share)
    np.minimum(conditions.hot, 2.0 / scenario.shape.luns, out=conditions.hot)


def _overlap(row: Array, interval: float, begin: float, length: float, amount: float) -> None:
    """Adds `amount` to `row` from `begin` on, to an interval that is covered in part its share of it."""
    first = int(begin / interval)
    last = min(int((begin + length) / interval), row.size - 1)
    if first >= row.size:
        return
    at = np.arange(first, last + 1) * interval
    covered = np.minimum(at + interval, begin + length) - np.maximum(at, begin)
    row[first : last + 1] += amount * covered / interval
