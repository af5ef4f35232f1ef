"""Slow and obvious twins of the analysis of jobs."""

import math

Span = tuple[int, int]


def haar_denoised(values: list[float]) -> list[float]:
    """The undecimated Haar transform with soft thresholds, value by value."""
    size = len(values)
    approximation, total = list(values), [0.0] * size
    spread = 0.0
    for level, gain in enumerate((0.612, 0.331, 0.212)):
        step = 1 << level
        if 2 * step > size:
            break
        smooth = []
        for i in range(size):
            before, after = approximation[max(i - step, 0)], approximation[min(i + step, size - 1)]
            smooth.append(approximation[i] / 2 + (before + after) / 4)
        details = [a - s for a, s in zip(approximation, smooth, strict=True)]
        if level == 0:
            ordered = sorted(abs(d) for d in details)
            place = 0.1 * (size - 1)
            low = math.floor(place)
            high = min(low + 1, size - 1)
            spread = (ordered[low] + (place - low) * (ordered[high] - ordered[low])) / 0.1257 / gain
        threshold = spread * gain * math.sqrt(2 * math.log(size))
        for i, detail in enumerate(details):
            total[i] += math.copysign(max(abs(detail) - threshold, 0.0), detail)
        approximation = smooth
    return [a + d for a, d in zip(approximation, total, strict=True)]


def refined(span: Span, rate: list[float], bound: float, is_open: list[bool]) -> Span:
    """A span grown row by row over open rows above a bound, then trimmed."""
    first, past = span
    while first > 0 and is_open[first - 1] and rate[first - 1] > bound:
        first -= 1
    while past < len(rate) and is_open[past] and rate[past] > bound:
        past += 1
    if all(rate[i] <= bound for i in range(first, past)):
        return first, first
    while rate[first] <= bound:
        first += 1
    while rate[past - 1] <= bound:
        past -= 1
    return first, past
