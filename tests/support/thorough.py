"""How much the tests try: samples by default, everything with LAGGARD_TEST_THOROUGH=1.

Properties get fewer examples by default, other ones in each run.
"""

import os
from typing import Final

IS_THOROUGH: Final = os.environ.get("LAGGARD_TEST_THOROUGH", "0") == "1"
EXAMPLES: Final = 100 if IS_THOROUGH else 30
"""Examples of a property that does not say how many."""
_FEWEST_EXAMPLES: Final = 5


def examples(count: int) -> int:
    """Examples of a property that wants `count`: as many when thorough, else about a third."""
    return count if IS_THOROUGH else min(count, max(_FEWEST_EXAMPLES, count // 3))


def times(count: int, fewer: int) -> int:
    """`count` when thorough, else `fewer`."""
    return count if IS_THOROUGH else fewer
