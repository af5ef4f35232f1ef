"""Counters of 32 bits made into counters that do not wrap."""


def rise(after: int, before: int, bits: int) -> int:
    """By how much a counter of so many bits rose from `before` to `after`, over a wrap as well.

    More than half of its range is no rise: it began anew, and `after` is all that it has counted since.
    """
    risen = (after - before) % (1 << bits)
    return risen if risen < 1 << (bits - 1) else after
