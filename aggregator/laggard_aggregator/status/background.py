"""Counts of the work that follows the archive at its own pace."""

from dataclasses import dataclass


@dataclass(slots=True)
class BackgroundWork:
    """Totals since the start. `lag_seconds`: for how long the oldest hour that is due has waited.

    `rolled_hours`, `rolled_rows`: of `series60`. `failures`: passes that ended with an error; `failure`: the
    last one's while it lasts.
    """

    rolled_hours: int = 0
    rolled_rows: int = 0
    lag_seconds: float = 0.0
    failures: int = 0
    failure: str = ""
