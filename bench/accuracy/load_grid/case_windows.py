"""The windows of one case, line by line."""

from collections.abc import Collection, Iterator

import numpy as np

from bench.accuracy.load_grid.judge import judgements
from bench.accuracy.load_grid.scenario import Scenario, Seeds
from bench.accuracy.load_grid.series import EPOCH
from laggard_aggregator.alarms.judge import Judgement


def lines(scenario: Scenario, number: int, seeds: Seeds, *, with_load: bool = True) -> Iterator[str]:
    """A line a window: hours since the begin, each ill one's score and factor, and the worst other one's.

    `*` after a score: anomalous; `!`: its alarm stands. In brackets the fault at the window's end.
    """
    series = scenario.series(number, seeds)
    judged, _ = judgements(series, scenario.windows, scenario.loads if with_load else ())
    ill = list(dict.fromkeys(fault.component for fault in series.ill))
    standing: set[str] = set()
    load = "with load" if with_load else "without load"
    yield f"{scenario.name}, try {number}, {seeds} seeds, {load}; ill: {', '.join(ill) or 'nobody'}"
    for judgement in judged:
        for event in judgement.transitions:
            (standing.add if event.kind == "raised" else standing.discard)(event.alarm.component)
        at, known = judgement.end - EPOCH, judgement.components
        scores = np.where([name in ill for name in known], -1.0, np.nan_to_num(judgement.verdicts.score))
        factors = [f"{fault.factor:g}x" for fault in series.ill if fault.begin < at <= fault.end]
        own = [_place(judgement, known.index(name), standing) for name in ill if name in known]
        worst = _place(judgement, int(scores.argmax()), standing)
        now = f"[{', '.join(factors)}]"
        note = f"  {judgement.verdicts.note}" if judgement.verdicts.note else ""
        yield f"{at / 3600:7.3f} h  {'  '.join([*own, now])}  worst other: {worst}{note}"


def _place(judgement: Judgement, row: int, standing: Collection[str]) -> str:
    verdicts, name = judgement.verdicts, judgement.components[row]
    if not verdicts.judged[row]:
        return f"{name} not judged{'!' * (name in standing)}"
    marks = "*" * bool(verdicts.anomalous[row]) + "!" * (name in standing)
    return f"{name} {verdicts.score[row]:.2f}{marks} {verdicts.severity[row]:.2f}x"
