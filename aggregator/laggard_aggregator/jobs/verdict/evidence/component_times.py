"""Times of a job's requests on each component, beside those of its other components, summed over the job.

A request lost time where it took longer than the median component of the same layer and direction. Means over
a whole job do not say when a component was slow: the detector (`slow_parts.py`) judges minutes, but needs a
longer job than some are.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from laggard_aggregator.detect.peers import mad_spread
from laggard_aggregator.jobs.index.reader import Row
from laggard_aggregator.jobs.verdict.evidence.path_shares import busy_servers
from laggard_aggregator.status import formatting
from laggard_aggregator.status.formatting import counted, took

LEAST_PEERS: Final = 3
"""Other components with enough requests; fewer say nothing about the normal."""
LEAST_REQUESTS: Final = 100
SLOW_FACTOR: Final = 2.0
_SPREADS: Final = 5.0
"""Robust standard deviations of the peers' log times beyond which a component stands out."""
_LEAST_SPREAD: Final = 0.1
_LARGER: Final = 2.0
"""Mean request size, as a multiple of the peers', that explains longer requests."""
_SENTENCES: Final = 2
_DOING: Final = {"read": "a read", "write": "a write", "metadata": "a metadata operation"}


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Requests of one direction. `seconds`: their mean time, None where unknown.

    `factor`: that as a multiple of the median of `peers` components; None with too few of them.
    `lost_seconds`: time beyond that median, summed over all requests.
    """

    bytes: float | None
    count: float | None
    seconds: float | None = None
    factor: float | None = None
    peers: int = 0
    lost_seconds: float | None = None
    stands_out: bool = False


@dataclass(frozen=True, slots=True)
class ComponentTimes:
    """A component with its requests by direction: read, write, metadata.

    `slow`: it stands out from its peers; `shared`: other jobs used it too.
    """

    layer: str
    node: str
    component: str
    shared: bool
    slow: bool
    lost_seconds: float | None
    requests: Mapping[str, RequestTimes]

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return "/".join(part for part in (self.node, self.component) if part)

    @property
    def worst(self) -> tuple[str, RequestTimes]:
        """The direction in which it stands out and lost most, with its requests."""
        ranked = sorted(
            self.requests.items(), key=lambda item: (item[1].stands_out, item[1].lost_seconds or 0.0)
        )
        return ranked[-1]

    def record(self) -> dict[str, Any]:
        """The component as JSON has it."""
        _, worst = self.worst
        return {
            **{name: getattr(self, name) for name in ("layer", "node", "component", "shared", "slow")},
            "factor": worst.factor,
            "lost_seconds": self.lost_seconds,
            "requests": {
                direction: {key: value for key, value in asdict(request).items() if key != "stands_out"}
                for direction, request in self.requests.items()
            },
        }


def component_times(rows: Iterable[Row]) -> list[ComponentTimes]:
    """The components with requests or bytes in rows of `job_components`.

    Slow ones come first, then those on which most time was lost, then by volume.
    """
    sums: dict[tuple[str, str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    rows = list(rows)
    for row in rows:
        if row["bytes"] or row["operations"]:
            sums[row["layer"], row["node"], row["component"]][row["direction"]].append(row)
    own = {
        key: {direction: _summed(parts) for direction, parts in by_direction.items()}
        for key, by_direction in sums.items()
    }
    compared = _compared(own)
    busy = busy_servers(rows)
    components = []
    for key, requests in compared.items():
        lost = [own.lost_seconds for own in requests.values() if own.lost_seconds is not None]
        components.append(
            ComponentTimes(
                *key,
                shared=any(row["shared"] for parts in sums[key].values() for row in parts),
                slow=key not in busy and any(request.stands_out for request in requests.values()),
                lost_seconds=sum(lost) if lost else None,
                requests=requests,
            )
        )

    def order(component: ComponentTimes) -> tuple[bool, float, float, str]:
        moved = sum(request.bytes or 0.0 for request in component.requests.values())
        return (not component.slow, -(component.lost_seconds or 0.0), -moved, component.name)

    return sorted(components, key=order)


def slow_alike(components: Sequence[ComponentTimes]) -> list[list[ComponentTimes]]:
    """The slow ones among `components`, those of one name and direction on several nodes together."""
    alike: dict[tuple[str, str, str], list[ComponentTimes]] = defaultdict(list)
    for component in components:
        if component.slow:
            key = component.layer, component.component or component.node, component.worst[0]
            alike[key].append(component)
    return list(alike.values())


def slow_sentence(components: Sequence[ComponentTimes]) -> str:
    """Names the slow ones among `components` with their figures; empty without any."""
    alike = slow_alike(components)
    said = [slow_on(some) for some in alike[:_SENTENCES]]
    if len(alike) > _SENTENCES:
        said.append(f"{len(alike) - _SENTENCES} more slow")
    return "; ".join(said)


def slow_on(some: Sequence[ComponentTimes]) -> str:
    """A slow component with its figures, on one node or, of the same name, on `some` of them."""
    direction, requests = some[0].worst
    doing = _DOING.get(direction, direction)
    if len(some) == 1:
        far = f"{_times(requests)} times the median of the {requests.peers} others"
        return f"{some[0].name} took {took(requests.seconds)} {doing}, {far}"
    by_factor = sorted((own.worst[1] for own in some), key=lambda request: request.factor or 0.0)
    least, most = (_times(request) for request in (by_factor[0], by_factor[-1]))
    far = f"{least} times" if least == most else f"{least} to {most} times"
    where = f"on {counted(len(some), 'node')}"
    slowest = took(by_factor[-1].seconds)
    return f"{some[0].component} took up to {slowest} {doing} {where}, {far} the median of the others"


def _times(requests: RequestTimes) -> str:
    """The factor of requests that stand out, as `23` or `6.5`."""
    assert requests.factor is not None, "it stands out"
    return formatting.factor(requests.factor).rstrip("\N{MULTIPLICATION SIGN}")


def _summed(rows: Sequence[Row]) -> RequestTimes:
    """Rows of one component and direction, with and without sharing, together."""

    def total(name: str) -> float | None:
        known = [row[name] for row in rows if row[name] is not None]
        return sum(known) if known else None

    count, latency = total("operations"), total("latency_seconds")
    mean = latency / count if latency and count else None
    return RequestTimes(total("bytes"), count, mean)


def _compared(
    own: Mapping[tuple[str, str, str], Mapping[str, RequestTimes]],
) -> dict[tuple[str, str, str], dict[str, RequestTimes]]:
    """Each component's requests with their factor over the others of its layer and direction."""
    judged: dict[tuple[str, str], dict[tuple[str, str, str], tuple[float, float]]] = defaultdict(dict)
    for key, requests in own.items():
        for direction, request in requests.items():
            if request.seconds and request.count and request.count >= LEAST_REQUESTS:
                judged[key[0], direction][key] = request.seconds, (request.bytes or 0.0) / request.count
    compared = {}
    for key, requests in own.items():
        compared[key] = {
            direction: _beside(request, key, judged[key[0], direction])
            for direction, request in requests.items()
        }
    return compared


def _beside(
    own: RequestTimes,
    key: tuple[str, str, str],
    judged: Mapping[tuple[str, str, str], tuple[float, float]],
) -> RequestTimes:
    others = [figures for other, figures in judged.items() if other != key]
    if key not in judged or len(others) < LEAST_PEERS or own.seconds is None or own.count is None:
        return own
    reference = median(seconds for seconds, _ in others)
    size, usual_size = judged[key][1], median(size for _, size in others)
    logs = np.log([seconds for seconds, _ in others])
    spread = max(mad_spread(logs), _LEAST_SPREAD)
    factor = own.seconds / reference
    return RequestTimes(
        own.bytes,
        own.count,
        own.seconds,
        factor,
        len(others),
        max(own.seconds - reference, 0.0) * own.count,
        stands_out=factor >= SLOW_FACTOR
        and float(np.log(factor)) > _SPREADS * spread
        and size <= _LARGER * usual_size,
    )
