"""The demo's output: a live table on a terminal, plain lines elsewhere."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.demo.episodes import Episode
from laggard_aggregator.status.text_table import TableColumn, text_table
from laggard_aggregator.status.view import Status
from laggard_common.visible import visible

LINE_EVERY_SECONDS = 60
"""Recorded seconds between plain lines."""


@dataclass(frozen=True, slots=True)
class State:
    """The state to show. `second` of `seconds`: position of the replay, in recorded seconds.

    `components`: the LUNs in order. `remarks`: lines under the table.
    """

    second: float
    seconds: float
    speed: int
    components: tuple[str, ...]
    episodes: list[Episode]
    remarks: tuple[str, ...]

    @property
    def where(self) -> str:
        """Position of the replay as text."""
        if self.second <= self.seconds:
            return f"second {self.second:.0f} of {self.seconds:.0f}"
        after = self.second - self.seconds
        return f"{after:.0f} s after the end of the recording, whose last part is repeated"


class Screen:
    """Shows states and judgements of `group` on `console`; a context manager for the live table."""

    def __init__(self, console: Console, view: Status, group: str) -> None:
        self._console = console
        self._view = view
        self._group = group
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next_line = 0.0
        self._said: set[tuple[str, float, float | None]] = set()

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, state: State) -> None:
        """Refreshes the table, or prints changed episodes, and a line at intervals."""
        judged = latest(self._view.judgements(), self._group)
        if self._live is not None:
            alarmed = {component for group, component, _ in self._view.alarms() if group == self._group}
            self._live.update(picture(state, judged, alarmed, self._console.width), refresh=True)
            return
        for episode in state.episodes:
            if (change := (episode.component, episode.raised, episode.cleared)) not in self._said:
                self._said.add(change)
                self._say(episode.described(state.seconds))
        if state.second >= self._next_line:
            self._next_line = (state.second // LINE_EVERY_SECONDS + 1) * LINE_EVERY_SECONDS
            self._say(f"{state.where}: {summary(judged)}")

    def _say(self, line: str) -> None:
        self._console.print(Text(visible(line)), soft_wrap=True)


def latest(judgements: Iterable[Judgement], group: str) -> Judgement | None:
    """The group's latest judgement of await, None before its first window."""
    return next((j for j in judgements if j.group == group and j.metric == "await"), None)


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


_COLUMNS = (
    TableColumn("LUN"),
    TableColumn("state"),
    TableColumn("await", right=True, dispensable=1),
    TableColumn("peers", right=True, dispensable=3),
    TableColumn("times slower", right=True, dispensable=2),
    TableColumn("score", right=True, dispensable=4),
    TableColumn("persistence", right=True, dispensable=5),
)


def picture(state: State, judged: Judgement | None, alarmed: set[str], width: int) -> RenderableType:
    """The table with its remarks, at most `width` columns wide."""
    title = f"{state.where}, replayed at {state.speed}x the speed"
    rows, styles = [], [""]
    places = {} if judged is None else {name: c for c, name in enumerate(judged.components)}
    for component in state.components:
        c = places.get(component)
        if judged is None or c is None or not judged.verdicts.judged[c]:
            rows.append((component, "-", *[""] * 5))
            styles.append("dim")
            continue
        v = judged.verdicts
        state_, style = _state(component in alarmed, bool(judged.straggler[c]), bool(v.anomalous[c]))
        styles.append(style)
        rows.append(
            (
                component,
                state_,
                _ms(v.observed[c]),
                _ms(v.reference[c]),
                f"{_slower(v.observed[c], v.reference[c]):.1f}",
                f"{v.score[c]:.2f}",
                str(judged.persistence[c]),
            )
        )
    table = zip_longest(text_table(_COLUMNS, rows, width), styles, fillvalue="")
    lines = (*(episode.described(state.seconds) for episode in state.episodes), *state.remarks)
    shown = [Text(title), Text(), *(Text(line, style) for line, style in table), Text()]
    return Group(*shown, *(Text(visible(line)) for line in lines))


def _state(alarmed: bool, straggler: bool, anomalous: bool) -> tuple[str, str]:
    """The state of a component in a word, and the style of its row."""
    if alarmed:
        return "ALARM", "bold red"
    if straggler:
        return "straggler", "red"
    return ("anomalous", "yellow") if anomalous else ("ok", "")


def _ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f} ms"


def _slower(observed: float, reference: float) -> float:
    return observed / reference if reference > 0 else 0.0
