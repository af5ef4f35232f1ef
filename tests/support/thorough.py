"""How much the tests try: samples by default, everything with LAGGARD_TEST_THOROUGH=1.

A test that damages a file at each place asserts the same of each; by default it takes some, evenly spread.
Properties get fewer examples, other ones in each run.
"""

import os
from typing import Final

IS_THOROUGH: Final = os.environ.get("LAGGARD_TEST_THOROUGH", "0") == "1"
EXAMPLES: Final = 100 if IS_THOROUGH else 30
"""Examples of a property that does not say how many."""
_FEWEST_EXAMPLES: Final = 5
_PLACES: Final = 120


def examples(count: int) -> int:
    """Examples of a property that wants `count`: as many when thorough, else about a third."""
    return count if IS_THOROUGH else min(count, max(_FEWEST_EXAMPLES, count // 3))


def times(count: int, fewer: int) -> int:
    """`count` when thorough, else `fewer`."""
    return count if IS_THOROUGH else fewer


def places(count: int, most: int = _PLACES) -> range:
    """Every place of `count` when thorough, else about `most` of them, evenly spread.

    The first is among them and the step is odd, so that flags and fields of even widths are not missed alike.
    """
    step = 1 if IS_THOROUGH else max(1, count // most) | 1
    return range(0, count, step)
