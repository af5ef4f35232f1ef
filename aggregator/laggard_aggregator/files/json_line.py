"""One JSON object on one line, for output that programs read."""

import json
import math
from typing import Any


def line(record: dict[str, Any]) -> str:
    """The record as JSON on one line, with unprintable characters escaped."""
    text = json.dumps(record, allow_nan=False, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(record, allow_nan=False).replace("\x7f", "\\u007f")


def six_digits(value: float | None) -> float | None:
    """`value` to six significant digits; None for values that JSON lacks."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
