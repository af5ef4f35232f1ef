"""The tables of the load grid."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.accuracy.load_grid.outcome import Outcome
from bench.accuracy.load_grid.results import Result

WORSE = 0.02
"""Share by which figures with load may be worse than without."""
HEALTHY = "healthy"


@dataclass(slots=True)
class Sums:
    """Sums over outcomes."""

    ill: int = 0
    found: int = 0
    healthy: int = 0
    named: int = 0
    alarmed: int = 0
    days: float = 0.0
    parents: int = 0
    parts: int = 0
    parts_told: int = 0
    notes: int = 0
    runs: int = 0
    delays: list[float] = field(default_factory=list)
    clearing: list[float] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Adds the outcome of one run."""
        self.runs += 1
        self.ill += outcome.ill
        self.found += outcome.found
        self.healthy += outcome.healthy
        self.named += len(outcome.named)
        self.alarmed += len(outcome.alarmed)
        self.days += outcome.healthy_days
        self.parents += bool(outcome.parents)
        self.notes += outcome.notes
        self.parts += outcome.parts
        self.parts_told += outcome.parts_told
        self.delays += outcome.delays
        self.clearing += outcome.clearing

    @property
    def share(self) -> float:
        """Share of the ill that was found."""
        return self.found / self.ill if self.ill else float("nan")

    @property
    def named_share(self) -> float:
        """Share of the healthy component-spans that was named."""
        return self.named / self.healthy if self.healthy else 0.0


@dataclass(slots=True)
class Pair:
    """Sums with load, and of the runs it is compared with, if any."""

    known: Sums = field(default_factory=Sums)
    unknown: Sums = field(default_factory=Sums)

    def add(self, result: Result) -> None:
        """Adds a result."""
        self.known.add(result.with_load)
        if result.without_load is not None:
            self.unknown.add(result.without_load)

    @property
    def finds_less(self) -> bool:
        """Whether fewer are found with load than in the other."""
        return self.unknown.share - self.known.share > WORSE

    @property
    def names_more(self) -> bool:
        """Whether more of the healthy are named with load than in the other."""
        return bool(self.unknown.runs) and self.known.named_share - self.unknown.named_share > WORSE

    def found_text(self) -> str:
        """Percent found in both; `!` where the first is worse."""
        if not self.known.ill:
            return "-"
        text = f"{100 * self.known.share:.0f}"
        return f"{text}/{100 * self.unknown.share:.0f}{'!' * self.finds_less}" if self.unknown.ill else text

    def named_text(self) -> str:
        """Healthy components called stragglers, in both."""
        known, unknown = self.known, self.unknown
        return f"{known.named}/{unknown.named}{'!' * self.names_more}" if unknown.runs else f"{known.named}"

    def alarmed_text(self) -> str:
        """Healthy components that ever had an alarm, in both."""
        known, unknown = self.known, self.unknown
        return f"{known.alarmed}/{unknown.alarmed}" if unknown.runs else f"{known.alarmed}"


def tables(results: Sequence[Result], other: str = "without") -> Iterator[str]:
    """Lines of all tables. `other`: of the second figures, `without` load or `before`."""
    grid = [result for result in results if result.row.startswith("grid/")]
    others = [result for result in results if not result.row.startswith("grid/")]
    plain = [result for result in grid if _is_plain(result.row)]
    if plain:
        views: Mapping[str, Callable[[list[str]], str]] = {
            "load, curve": lambda parts: f"{parts[1]:<8}{parts[2]}",
            "load, members": lambda parts: f"{parts[1]:<8}{int(parts[3]):>3}",
            "load, noise": lambda parts: f"{parts[1]:<8}{parts[4]:>4}",
        }
        for title, view in views.items():
            yield from _factors(title, plain, view)
            yield ""
    special = [result for result in grid if not _is_plain(result.row)]
    if special:
        yield from _factors("15 s; noise that wanders (w); knee", special, lambda parts: "/".join(parts[1:]))
        yield ""
    if others:
        yield from _scenarios("scenario", others)
        yield ""
        yield from _by_day(others)
    yield from _scenarios("all of a kind", results, _kind)
    yield ""
    yield from _legend(results, other)


def _kind(result: Result) -> str:
    first, second = result.row.split("/")[:2]
    group = f"{first}/{second}" if first in {"grid", "sizes", "now and then", "together"} else first
    return f"{group}, healthy" if result.column == HEALTHY else group


def _is_plain(row: str) -> bool:
    return row.count("/") == 4 and not row.endswith("w") and "/knee/" not in row


def _factors(title: str, results: Sequence[Result], view: Callable[[list[str]], str]) -> Iterator[str]:
    """A line for each label that `view` makes of a row's parts, a column for each factor."""
    columns = sorted({r.column for r in results} - {HEALTHY}, key=lambda text: float(text.rstrip("x")))
    rows: dict[str, dict[str, Pair]] = {}
    for result in results:
        pairs = rows.setdefault(view(result.row.split("/")), {})
        for column in (result.column, ""):
            pairs.setdefault(column, Pair()).add(result)
    width = max(len(title), *map(len, rows)) + 1
    heads = "".join(f"{column:>10}" for column in columns)
    yield f"{title:<{width}}{heads}  {_HEAD}"
    for label, pairs in rows.items():
        cells = "".join(f"{pairs[c].found_text() if c in pairs else '-':>10}" for c in columns)
        yield f"{label:<{width}}{cells}  {_tail(pairs[''])}"


def _scenarios(
    title: str, results: Sequence[Result], view: Callable[[Result], str] = lambda r: f"{r.row} {r.column}"
) -> Iterator[str]:
    """A line for each label that `view` makes of a result: by default each scenario."""
    rows: dict[str, Pair] = {}
    for result in results:
        rows.setdefault(view(result), Pair()).add(result)
    width = max(len(title), *map(len, rows)) + 1
    yield f"{title:<{width}}{'runs':>5}{'ill':>5}{'found %':>10}  {_HEAD}{'above':>6}{'told':>7}"
    for label, pair in rows.items():
        sums = pair.known
        told = f"{sums.parts_told}/{sums.parts}" if sums.parts else "-"
        head = f"{label:<{width}}{sums.runs:>5}{sums.ill:>5}{pair.found_text():>10}"
        yield f"{head}  {_tail(pair)}{sums.parents:>6}{told:>7}"


def _by_day(results: Sequence[Result]) -> Iterator[str]:
    """A line for each scenario of several days: false alarms by day."""
    days: dict[str, Counter[int]] = {}
    for result in results:
        if result.row.startswith(("backup/", "scrub/")):
            counts = days.setdefault(f"{result.row} {result.column}", Counter())
            counts.update(int(hours // 24) for hours in result.with_load.false_hours)
    if days:
        yield "false alarms with load, by day since the begin"
        for name, counts in days.items():
            yield f"{name:<40}{'  '.join(str(counts[day]) for day in range(max(counts, default=0) + 1))}"
        yield ""


_HEAD = f"{'delay':>8}{'clears':>9}{'named':>11}{'alarmed':>12}{'spans':>8}{'days':>8}{'not judged':>12}"


def _tail(pair: Pair) -> str:
    sums = pair.known
    delay = _median_and(sums.delays, 0.9, 60.0)
    clears = _median_and(sums.clearing, 0.95, 1.0)
    named, alarmed = pair.named_text(), pair.alarmed_text()
    notes = f"{sums.notes / max(sums.runs, 1):.0f}"
    return f"{delay:>8}{clears:>9}{named:>11}{alarmed:>12}{sums.healthy:>8}{sums.days:>8.0f}{notes:>12}"


def _median_and(values: Iterable[float], quantile: float, unit: float) -> str:
    known = np.sort(np.array(list(values)) / unit)
    if not known.size:
        return "-"
    # No interpolation: some are infinite.
    median, high = (known[int(np.ceil(q * known.size)) - 1] for q in (0.5, quantile))
    return f"{median:.0f}/{high:.0f}"


def _legend(results: Sequence[Result], other: str) -> Iterator[str]:
    worst = [result for result in results if result.without_load is not None]
    pairs: dict[tuple[str, str], Pair] = {}
    for result in worst:
        pairs.setdefault((result.row, result.column), Pair()).add(result)
    less = sum(pair.finds_less for pair in pairs.values())
    more = sum(pair.names_more for pair in pairs.values())
    yield f"1.2x to 10x: percent of the ill found, with load / {other}; ! = more than 2 % worse"
    yield "delay: minutes from a fault to its alarm, median/90 %; clears: windows from its end, median/95 %"
    yield "named: healthy components called stragglers; alarmed: that ever had an alarm; of spans, days"
    yield "not judged: windows a run with a note; above: runs with an alarm of a server, a model, the group"
    yield "told: parts of a group that are slow together, and named by such an alarm while they are"
    if pairs:
        yield f"of {len(pairs)} cells {less} find less, and {more} name more, than {other}"
