"""Haar wavelets: denoising by soft thresholds, and the low-pass reconstruction of Beacon and IOSI.

Which wavelet matters less than the threshold: Haar has steps, as phases have, and needs no library.
"""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
_GAINS = (0.612, 0.331, 0.212)
"""Standard deviation of the details of each level, of white noise of 1."""
_QUIET = 0.1
"""Quantile of the absolute details that gives the spread: rows of phases are noisier than the background."""
_BLOCK = 2**3
"""Rows of a block of the low-pass reconstruction: three levels."""
_SAMPLE = 16_384
"""Rows that give the spread, of a longer series evenly spaced ones."""
_GAUSSIAN_QUANTILE = 0.1257
"""10 % quantile of the absolute value of a standard normal variable."""


def denoised(values: FloatArray) -> FloatArray:
    """`values` without noise, shape (n,): soft thresholds on the details of an undecimated Haar transform.

    The threshold is the universal one, spread x sqrt(2 ln n) (Donoho and Johnstone 1994). The spread is
    that of the quietest details of the finest level; coarser levels hold the phases themselves. Undecimated:
    a step is kept wherever it lies, also at odd rows. Where many rows are equal, they stay as they are.
    """
    size = values.size
    if size < 2:
        return values.copy()
    approximation, details, detail, spread = values, np.zeros(size), np.empty(size), 0.0
    for level, gain in enumerate(_GAINS):
        step = 1 << level
        if 2 * step > size:
            break
        smooth = _centred_mean(approximation, step, detail)
        np.subtract(approximation, smooth, out=detail)
        if level == 0:
            spread = (
                float(np.quantile(np.abs(detail[:: 1 + size // _SAMPLE]), _QUIET)) / _GAUSSIAN_QUANTILE / gain
            )
        threshold = spread * gain * np.sqrt(2 * np.log(size))
        details += detail
        details -= np.clip(detail, -threshold, threshold, out=detail)
        approximation = smooth
    return approximation + details


def _centred_mean(values: FloatArray, step: int, scratch: FloatArray) -> FloatArray:
    """Mean of each value with its neighbours `step` rows before (1/4) and after (1/4), edges repeated.

    Two Haar low-pass filters, one to each side, so that the result is not shifted. `scratch`, of the same
    shape, is overwritten: new memory costs more than the sums.
    """
    mean = values * 0.5
    quarter = np.multiply(values, 0.25, out=scratch)
    mean[step:] += quarter[:-step]
    mean[:-step] += quarter[step:]
    mean[:step] += quarter[0]
    mean[-step:] += quarter[-1]
    return mean


def low_pass(values: FloatArray) -> FloatArray:
    """Reconstruction of `values`, shape (n,), from the approximation alone: means of blocks.

    The decimated transform with all details dropped, as IOSI (FAST '14) and Beacon (NSDI '19, appendix B) use
    it to find bursts.
    """
    padded = np.concatenate((values, np.repeat(values[-1:], -values.size % _BLOCK)))
    return np.repeat(padded.reshape(-1, _BLOCK).mean(1), _BLOCK)[: values.size]
