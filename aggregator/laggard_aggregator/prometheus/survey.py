"""The counters of the shipped maps that a server has, and how often it scrapes them."""

from collections.abc import Mapping
from dataclasses import dataclass

from laggard_aggregator.prometheus.compare_map import CompareMap, load_map, shipped_names
from laggard_aggregator.prometheus.server import PrometheusServer

LOOK_SECONDS = 900
"""Time before the survey in which a series must have been scraped."""
DEFAULT_SECONDS = 60.0
"""Prometheus's own default, for a server that has scraped once."""
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


def _surveyed(server: PrometheusServer, name: str, compare_map: CompareMap, at: float) -> MapSurvey:
    source = compare_map.sources[0]
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
        scrape_seconds=scrape_interval(
            server, f"{counter}{{{source.select}}}", float(counted[0].values[-1]), at
        ),
        jobs={job.labels.get("job", ""): int(job.values[-1]) for job in jobs},
        judged=bool(compare_map.compare),
    )


def _number(server: PrometheusServer, expression: str, at: float) -> int:
    answer = server.instant(expression, at)
    return int(answer[0].values[-1]) if answer else 0


def scrape_interval(server: PrometheusServer, series: str, scrapes: float, at: float) -> float:
    """The interval of most series, by their number of `scrapes` in LOOK_SECONDS, in which they may begin."""
    first = f"min_over_time(timestamp({series})[{LOOK_SECONDS}s:15s])"
    answer = server.instant(f"quantile(0.5, timestamp({series}) - {first})", at)
    span = float(answer[0].values[-1]) if answer else 0.0
    if scrapes < 2:
        return DEFAULT_SECONDS
    young = span / (scrapes - 1)
    return _usual(young if 0 < span < LOOK_SECONDS - 1.5 * young else LOOK_SECONDS / scrapes)


def _usual(seconds: float) -> float:
    """The usual interval near `seconds`, or whole seconds."""
    nearest = min(_USUAL_SECONDS, key=lambda usual: abs(seconds - usual))
    return float(nearest if abs(seconds - nearest) <= _MOST_OFF * nearest else max(round(seconds), 1))
