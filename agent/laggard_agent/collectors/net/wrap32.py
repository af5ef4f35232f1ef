"""Extends 32-bit counters so that they do not wrap."""


def rise(after: int, before: int, bits: int) -> int:
    """Increase of a counter from `before` to `after`, across a wrap.

    An increase of more than half the range means a reset: the result is `after`.
    """
    risen = (after - before) % (1 << bits)
    return risen if risen < 1 << (bits - 1) else after
