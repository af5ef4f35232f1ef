"""The share of the normal quantile that averages must exceed: `python -m bench.accuracy.confirmed_shares`.

A single test at the quantile of a chance needs no confirmation. An alarm needs k of 2k - 1 windows,
of any of six lengths of averages: each may be exceeded by less. Normal noise is simulated, first persistent
(fractional Gaussian noise with a Hurst exponent of 0.75, whose means of n values vary by n ** -1/4), then
independent. For each k and length the level is found that k of 2k - 1 successive averages exceed anew with a
sixth of the chance. Prints `CONFIRMED_SHARES` of `laggard_aggregator.detect.laggard.thresholds`.
"""

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special

from bench.machine import machine
from laggard_aggregator.detect.laggard.evidence import SCALE_WINDOWS

HURST = (0.75, 0.5)
CONFIRM = (1, 2, 3, 4, 5)
LEVELS = np.arange(1.5, 6.5, 0.02)
WARM_UP = 500
FloatArray = NDArray[np.float64]


def noise(size: int, hurst: float, rng: np.random.Generator) -> FloatArray:
    """Fractional Gaussian noise of unit variance; (size,). By circulant embedding (Davies, Harte 1987)."""
    lag = np.arange(size + 1.0)
    power = 2.0 * hurst
    covariance = 0.5 * ((lag + 1.0) ** power - 2.0 * lag**power + np.abs(lag - 1.0) ** power)
    spectrum = np.fft.rfft(np.concatenate([covariance, covariance[-2:0:-1]])).real
    drawn = rng.standard_normal((2, spectrum.size)) / np.sqrt(2.0)
    parts = drawn[0] + 1j * drawn[1]
    parts[[0, -1]] = np.sqrt(2.0) * parts[[0, -1]].real
    whole: FloatArray = np.fft.irfft(np.sqrt(np.maximum(spectrum, 0.0) * 2 * size) * parts, 2 * size)
    return whole[:size]


def onsets(average: FloatArray, confirm: int) -> FloatArray:
    """How often k of 2k - 1 successive values of `average` (T,) begin to exceed each of LEVELS."""
    width = 2 * confirm - 1
    windows = np.stack([average[i : average.size - width + 1 + i] for i in range(width)])
    reached = np.sort(windows, axis=0)[-confirm]
    before, after = reached[:-1], reached[1:]
    rising = after > before
    counts = np.searchsorted(np.sort(before[rising]), LEVELS) - np.searchsorted(
        np.sort(after[rising]), LEVELS
    )
    return counts.astype(np.float64)


def shares(hurst: float, chance: float, size: int, rng: np.random.Generator) -> FloatArray:
    """The shares (k, length) for noise of that persistence, from `size` blocks of 2 ** 20 windows."""
    counts = np.zeros((len(CONFIRM), SCALE_WINDOWS.size, LEVELS.size))
    total, spreads = 0, np.zeros(SCALE_WINDOWS.size)
    for block in range(size):
        values = noise(1 << 20, hurst, rng)
        for scale, windows in enumerate(SCALE_WINDOWS):
            gain = 2.0 / (windows + 1.0)
            average = signal.lfilter([gain], [1.0, gain - 1.0], values)[WARM_UP:]
            spreads[scale] = average.std() if block == 0 else spreads[scale]
            for row, confirm in enumerate(CONFIRM):
                counts[row, scale] += onsets(average / spreads[scale], confirm)
        total += values.size - WARM_UP
    rare = -np.log(chance / SCALE_WINDOWS.size)
    found = np.empty(counts.shape[:2])
    for place in np.ndindex(found.shape):
        seen = counts[place] > 0
        found[place] = np.interp(rare, -np.log(counts[place][seen] / total), LEVELS[seen])
    quantile: float = -special.ndtri(chance)
    return found / quantile


def main() -> None:
    """Prints the shares."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.confirmed_shares", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--chance", type=float, default=3e-6, help="false alarms a window")
    parser.add_argument("--blocks", type=int, default=10, help="of 2 ** 20 windows")
    parser.add_argument("--seed", type=int, default=6)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    by_noise = [shares(hurst, asked.chance, asked.blocks, rng) for hurst in HURST]
    print(f"chance {asked.chance:g}, {asked.blocks} blocks; lengths {SCALE_WINDOWS.astype(int).tolist()}\n")
    for row, confirm in enumerate(CONFIRM):
        for hurst, found in zip(HURST, by_noise, strict=True):
            print(f"k = {confirm}, Hurst {hurst:.2f}: {', '.join(f'{share:.2f}' for share in found[row])}")
    print(f"\n{machine('numpy', 'scipy')}")


if __name__ == "__main__":
    main()
