"""The counters of the shipped maps that a server has, and how often it scrapes them."""

from collections.abc import Mapping
from dataclasses import dataclass

from laggard_aggregator.prometheus.compare_map import CompareMap, load_map, shipped_names
from laggard_aggregator.prometheus.server import PrometheusServer

LOOK_SECONDS = 900
"""Time before the survey in which a series must have been scraped."""
_USUAL_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300)
_MOST_OFF = 0.12
"""A measured interval that is not further from a usual one stands for it: scrapes are missed, and cut off."""


@dataclass(frozen=True, slots=True)
class MapSurvey:
    """A shipped map: components and nodes that its first source has now, nodes by `job`, 0 without series.

    `scrape_seconds`: of most series. `counter`: the one that was looked for. `judged`: whether it has
    more than evidence.
    """

    name: str
    counter: str
    components: int
    nodes: int
    scrape_seconds: float
    jobs: Mapping[str, int]
    judged: bool = True


def survey(server: PrometheusServer, at: float) -> tuple[MapSurvey, ...]:
    """Each shipped map, by name. Raises ServiceError."""
    return tuple(_surveyed(server, name, load_map(name), at) for name in shipped_names())


def _surveyed(server: PrometheusServer, name: str, of: CompareMap, at: float) -> MapSurvey:
    source = of.sources[0]
    counter = source.counters[0]
    recent = f"count_over_time({counter}{{{source.select}}}[{LOOK_SECONDS}s])"
    counted = server.instant(f"quantile(0.5, {recent})", at)
    if not counted or not counted[0].values[-1] > 0:
        return MapSurvey(name, counter, 0, 0, 0.0, {})
    identity = ", ".join(source.identity)
    node = source.node or "instance"
    jobs = server.instant(f"count by (job) (count by (job, {node}) ({recent}))", at)
    return MapSurvey(
        name=name,
        counter=counter,
        components=_number(server, f"count(count by ({identity}) ({recent}))", at),
        nodes=_number(server, f"count(count by ({node}) ({recent}))", at),
        scrape_seconds=_usual(LOOK_SECONDS / float(counted[0].values[-1])),
        jobs={one.labels.get("job", ""): int(one.values[-1]) for one in jobs},
        judged=bool(of.compare),
    )


def _number(server: PrometheusServer, expression: str, at: float) -> int:
    answer = server.instant(expression, at)
    return int(answer[0].values[-1]) if answer else 0


def _usual(seconds: float) -> float:
    """The usual interval near `seconds`, or whole seconds."""
    nearest = min(_USUAL_SECONDS, key=lambda usual: abs(seconds - usual))
    return float(nearest if abs(seconds - nearest) <= _MOST_OFF * nearest else max(round(seconds), 1))
