"""Counts of the work that follows the archive at its own pace."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class BackgroundWork:
    """Totals since the start. `lag_seconds`: for how long the oldest hour that is due has waited.

    `rolled_hours`, `rolled_rows`: of `series60`. `joined_jobs`: jobs whose results were written,
    `judged_jobs`: jobs whose verdicts were, `waiting_jobs`: jobs that are due now. `failures`: passes that
    ended with an error; `failing`: the last error of each kind while it lasts.
    """

    rolled_hours: int = 0
    rolled_rows: int = 0
    lag_seconds: float = 0.0
    joined_jobs: int = 0
    judged_jobs: int = 0
    waiting_jobs: int = 0
    failures: int = 0
    failing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class JobPolls:
    """Polls of the scheduler's database since the start.

    `revisions`: records written. `left_out`: rows that could not be used. `succeeded_at`: epoch seconds of
    the last success, 0 before the first. `failure`: the reason why polls fail now, empty if they succeed.
    """

    revisions: int = 0
    left_out: int = 0
    succeeded_at: float = 0.0
    failures: int = 0
    failure: str = ""
