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


def dbscan(points: list[tuple[float, float]], epsilon: float, least_points: int) -> list[int]:
    """DBSCAN as its authors write it: visit each point, expand each cluster by a queue."""
    count = len(points)
    labels: list[int | None] = [None] * count
    cluster = -1

    def near(i: int) -> list[int]:
        return [j for j in range(count) if math.dist(points[i], points[j]) <= epsilon]

    for i in range(count):
        if labels[i] is not None:
            continue
        neighbours = near(i)
        if len(neighbours) < least_points:
            labels[i] = -1
            continue
        cluster += 1
        labels[i] = cluster
        queue = list(neighbours)
        while queue:
            j = queue.pop(0)
            if labels[j] == -1:
                labels[j] = cluster
            if labels[j] is not None:
                continue
            labels[j] = cluster
            further = near(j)
            if len(further) >= least_points:
                queue += further
    return [-1 if label is None else label for label in labels]
