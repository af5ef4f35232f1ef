"""Bins of times: powers of two of 1,048,576 ns, so that a bin `4` has times above 2.1 ms and up to 4.2 ms."""

from collections.abc import Sequence

BINS = tuple(2**power for power in range(18))
"""Upper bounds in 2^20 ns; the first has all times below it, the last all above the one before."""
_FIRST_POWER = 20


def fields_of(name: str) -> Sequence[str]:
    """The fields of a histogram."""
    return [f"{name}_ms_{bound}" for bound in BINS]


def bin_of(power: int) -> int:
    """The place in BINS of times up to 2^power ns."""
    return min(max(power - _FIRST_POWER, 0), len(BINS) - 1)
