"""The demo's output: a live table on a terminal, plain lines elsewhere."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.demo.watch import Episode
from laggard_aggregator.status.view import Status

LINE_EVERY_SECONDS = 60
"""Recorded seconds between plain lines."""


@dataclass(frozen=True, slots=True)
class State:
    """The state to show. `second` of `seconds`: position of the replay, in recorded seconds.

    `components`: the LUNs in order. `group`, `detector`: whose verdicts are shown. `episodes`: by detector.
    `remarks`: lines under the table.
    """

    second: float
    seconds: float
    speed: int
    components: tuple[str, ...]
    group: str
    detector: str
    episodes: dict[str, list[Episode]]
    remarks: tuple[str, ...]


class Screen:
    """Shows states on `console`; a context manager that keeps the live table."""

    def __init__(self, console: Console, view: Status) -> None:
        self._console = console
        self._view = view
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next_line = 0.0

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """Prints a permanent line."""
        self._console.print(Text(line), soft_wrap=True)

    def show(self, state: State) -> None:
        """Refreshes the table, or prints a line at intervals."""
        judged = latest(self._view.judgements(), state.group)
        if self._live is not None:
            self._live.update(picture(state, judged, self._alarmed(state.group)), refresh=True)
        elif state.second >= self._next_line:
            self._next_line = (state.second // LINE_EVERY_SECONDS + 1) * LINE_EVERY_SECONDS
            self.say(f"{where(state)}: {summary(judged)}")

    def _alarmed(self, group: str) -> set[str]:
        return {alarm.component for alarm in self._view.alarms().values() if alarm.group == group}


def latest(judgements: Iterable[Judgement], group: str) -> Judgement | None:
    """The group's latest judgement of await, None before its first window."""
    return next((j for j in judgements if j.group == group and j.metric == "await"), None)


def where(state: State) -> str:
    """Position of the replay as text."""
    if state.second <= state.seconds:
        return f"second {state.second:.0f} of {state.seconds:.0f}"
    return f"the recording is over, its recovered part goes on: second {state.second:.0f}"


def summary(judged: Judgement | None) -> str:
    """One-line summary of a judgement."""
    if judged is None:
        return "no window has closed yet"
    verdicts = judged.verdicts
    known = [c for c in range(len(judged.components)) if verdicts.judged[c]]
    if not known:
        return f"no verdict: {verdicts.note}"
    ratios = [_slower(float(verdicts.observed[c]), float(verdicts.reference[c])) for c in known]
    worst = known[ratios.index(max(ratios))]
    return (
        f"{len(known)} LUNs judged, {int(verdicts.anomalous.sum())} anomalous; slowest "
        f"{judged.components[worst]}, await {_ms(verdicts.observed[worst])}, "
        f"its peers {_ms(verdicts.reference[worst])}"
    )


def picture(state: State, judged: Judgement | None, alarmed: set[str]) -> RenderableType:
    """The table with its remarks."""
    table = Table(title=f"{where(state)}, replayed at {state.speed}x the speed", title_justify="left")
    for heading in ("LUN", "state"):
        table.add_column(heading)
    for heading in ("await", "peers' await", "times slower", "score", "persistence"):
        table.add_column(heading, justify="right")
    places = {} if judged is None else {name: c for c, name in enumerate(judged.components)}
    for component in state.components:
        c = places.get(component)
        if judged is None or c is None or not judged.verdicts.judged[c]:
            table.add_row(component, "-", *[""] * 5)
            continue
        v = judged.verdicts
        table.add_row(
            component,
            _state(component in alarmed, bool(judged.straggler[c]), bool(v.anomalous[c])),
            _ms(v.observed[c]),
            _ms(v.reference[c]),
            f"{_slower(v.observed[c], v.reference[c]):.1f}",
            f"{v.score[c]:.2f}",
            str(judged.persistence[c]),
        )
    told = [Text(line) for name, found in state.episodes.items() for line in _told(state, name, found)]
    return Group(table, *told, *(Text(remark) for remark in state.remarks))


def _told(state: State, detector: str, episodes: list[Episode]) -> list[str]:
    """Episodes as lines: one each for the shown detector, one in all for another."""
    if detector == state.detector:
        return [told_of(detector, episode) for episode in episodes]
    names = ", ".join(dict.fromkeys(episode.component for episode in episodes))
    standing = sum(episode.cleared is None for episode in episodes)
    return [f"{detector}, beside it: {standing} alarms stand; so far on {names or 'none'}"]


def told_of(detector: str, episode: Episode) -> str:
    """An episode in one line."""
    ended = "stands" if episode.cleared is None else f"cleared at second {episode.cleared:.0f}"
    return (
        f"{detector}: alarm on {episode.component}: {episode.severity:.1f} times slower than peers, since "
        f"second {episode.since:.0f}, raised at second {episode.raised:.0f}, {ended}"
    )


def _state(alarmed: bool, straggler: bool, anomalous: bool) -> Text:
    if alarmed:
        return Text("ALARM", style="bold red")
    if straggler:
        return Text("straggler", style="red")
    return Text("anomalous", style="yellow") if anomalous else Text("ok", style="green")


def _ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f} ms"


def _slower(observed: float, reference: float) -> float:
    return observed / reference if reference > 0 else 0.0
