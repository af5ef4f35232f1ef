"""Numbers of the pages of the whole site beside the truth: loads, metadata, amplification and the report."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.beacon_site.score import Number
from bench.beacon_site.shape import (
    START_SECONDS,
    forwarder_name,
    login_name,
    mdt_name,
    node_name,
    ost_name,
)
from bench.beacon_site.simulate import Array, Outcome, Simulation

TRACED_JOBS = 200
"""Jobs with most bytes, whose modes the report adds up."""
_MINUTE = 60
_MOST_STEPS = 1440
"""Of a heat map."""
_CLASSES = {"time_above_90": 0.9, "time_to_90": 0.5, "time_to_50": 0.1, "time_to_10": -1.0}
"""Columns of the shares of time, with the shares of the peak above which they begin."""
_SECTIONS = {"forwarders": "Forwarders", "osts": "OSTs", "mdts": "MDTs", "compute": "Compute nodes"}
"""Titles of the kinds in the report."""

Get = Callable[[str], bytes]
"""The answer to a GET of a path."""


@dataclass(slots=True)
class SiteTruth:
    """Follows a simulation: amounts that each component had moved, by the minute."""

    simulation: Simulation
    _moved: dict[str, list[Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._look()

    def follow(self) -> None:
        """Looks at the latest second."""
        if self.simulation.now % _MINUTE == 0:
            self._look()

    @property
    def minutes(self) -> int:
        """Whole minutes so far, in whole steps of a heat map."""
        looks = len(self._moved["osts"]) - 1
        return looks - looks % self._step_minutes

    @property
    def _step_minutes(self) -> int:
        return max(math.ceil((len(self._moved["osts"]) - 1) / _MOST_STEPS), 1)

    def names(self, kind: str) -> list[str]:
        """Names of the components of a kind."""
        shape = self.simulation.shape
        name, count = {
            "forwarders": (forwarder_name, shape.forwarders),
            "osts": (ost_name, shape.osts),
            "mdts": (mdt_name, shape.mdts),
            "compute": (node_name, shape.nodes),
        }[kind]
        return [name(number) for number in range(count)]

    def loads(self, kind: str) -> Iterator[tuple[str, dict[str, float]]]:
        """Yields the numbers of each component of a kind by their columns, rates in bytes or operations."""
        moved = np.array(self._moved[kind])[: self.minutes + 1 : self._step_minutes]
        rates = np.diff(moved, axis=0).T / (_MINUTE * self._step_minutes)
        requests, seconds = self._served(kind)
        largest, peak = rates.max(axis=1), rates.max()
        mean, shares = rates.mean(axis=1), rates / peak
        for at, name in enumerate(self.names(kind)):
            numbers = {
                "mean": mean[at],
                "mean_share": mean[at] / peak,
                "largest": largest[at],
                "peak": peak,
                "in_flight": seconds[at] / (_MINUTE * self.minutes),
            }
            if requests[at]:
                numbers["latency_seconds"] = seconds[at] / requests[at]
            below = np.inf
            for column, above in _CLASSES.items():
                numbers[column] = float(((shares[at] > above) & (shares[at] <= below)).mean())
                below = above
            yield name, {column: float(number) for column, number in numbers.items()}

    def metadata(self, by: str) -> dict[str, float]:
        """Operations by class of nodes, by target, or by application."""
        c, shape = self.simulation.counters, self.simulation.shape
        if by == "target":
            return dict(zip(self.names("mdts"), c.mdc_operations.sum(axis=(0, 2)).tolist(), strict=True))
        if by == "nodes":
            of_node = c.node_operations.sum(axis=1)
            return {
                _pattern(node_name(0), "compute"): float(of_node[: shape.nodes].sum()),
                _pattern(login_name(0), "compute"): float(of_node[shape.nodes :].sum()),
                _pattern(forwarder_name(0), "forwarding"): float(
                    c.forwarder_operations[: shape.forwarders].sum()
                ),
            }
        return {name: of["metadata_operations"] for name, of in self.groups(lambda run: run.name)}

    def groups(self, name: Callable[[Any], str]) -> Iterator[tuple[str, dict[str, float]]]:
        """Yields the sums of the jobs whose applications have one `name`."""
        found: dict[str, list[Outcome]] = {}
        for outcome in self.simulation.outcomes.values():
            found.setdefault(name(outcome.run.application), []).append(outcome)
        for group, outcomes in found.items():
            yield group, _sums(outcomes)

    def modes(self) -> dict[tuple[str, str], float]:
        """Bytes by direction and mode of the jobs with most bytes."""
        largest = sorted(self.simulation.outcomes.values(), key=_bytes, reverse=True)[:TRACED_JOBS]
        found: dict[tuple[str, str], float] = {}
        for outcome in largest:
            shared = self.simulation.application(outcome.run).shared_file
            for phase in outcome.phases:
                if phase.kind != "metadata":
                    key = phase.kind, "N-1" if shared and phase.kind == "write" else "N-N"
                    found[key] = found.get(key, 0.0) + phase.amount
        return found

    def _look(self) -> None:
        c, shape = self.simulation.counters, self.simulation.shape
        for kind, moved in (
            ("forwarders", c.forwarder_bytes[: shape.forwarders].sum(axis=1)),
            ("osts", c.osc_bytes.sum(axis=(0, 2))),
            ("mdts", c.mdc_operations.sum(axis=(0, 2))),
            ("compute", c.node_bytes[: shape.nodes].sum(axis=1)),
        ):
            self._moved.setdefault(kind, []).append(moved)

    def _served(self, kind: str) -> tuple[Array, Array]:
        """Requests and the seconds that they took."""
        c, shape = self.simulation.counters, self.simulation.shape
        requests, seconds = {
            "forwarders": (c.forwarder_requests[: shape.forwarders], c.forwarder_seconds[: shape.forwarders]),
            "osts": (c.osc_requests.sum(axis=0), c.ost_seconds),
            "mdts": (c.mdc_operations.sum(axis=0), c.mdt_seconds),
            "compute": (c.node_requests[: shape.nodes], c.node_seconds[: shape.nodes]),
        }[kind]
        return requests.sum(axis=1), seconds.sum(axis=1)


def page_numbers(get: Get, truth: SiteTruth, *, of_compute: bool) -> dict[str, Number]:
    """Errors of the numbers of all pages of the site. `of_compute`: its compute nodes send counters."""
    when = f"from={START_SECONDS}&to={START_SECONDS + _MINUTE * truth.minutes}"
    kinds = [kind for kind in _SECTIONS if of_compute or kind != "compute"]
    found: dict[str, Number] = {}

    def table(path: str, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(get(f"{path}&{when}&format=json"))[name]
        return rows

    for kind in kinds:
        given = {row["component"]: row for row in table(f"/loads?of={kind}", "loads")}
        for name, numbers in truth.loads(kind):
            _compare(found, f"/loads {kind}", numbers, given.get(name, {}))
    for by in ("nodes", "target", "application"):
        given = {row["name"]: row["operations"] for row in table(f"/metadata?by={by}", "metadata")}
        expected = truth.metadata(by)
        if not of_compute:
            expected.pop(_pattern(node_name(0), "compute"), None)
        for name, operations in expected.items():
            _compare(found, f"/metadata by {by}", {"operations": operations}, {"operations": given.get(name)})
    amplified = json.loads(get("/amplification?format=json"))["amplification"]
    _compare(found, "/amplification", {"jobs": 0.0}, {"jobs": len(amplified)})
    records = [json.loads(line) for line in get(f"/report?{when}&format=json").splitlines()]
    _compare_report(found, records, truth, kinds)
    return found


def _compare_report(
    found: dict[str, Number], records: Sequence[Mapping[str, Any]], truth: SiteTruth, kinds: Iterable[str]
) -> None:
    def of(kind: str, *names: str) -> dict[tuple[Any, ...], Mapping[str, Any]]:
        return {
            tuple(record[name] for name in names): record for record in records if record["record"] == kind
        }

    whole = _sums(truth.simulation.outcomes.values())
    _compare(found, "/report total", whole | {"amplified_jobs": 0.0}, of("total").get((), {}))
    applications, users = of("application", "name"), of("user", "name")
    for name, numbers in truth.groups(lambda run: run.name):
        _compare(found, "/report application", numbers, applications.get((name,), {}))
    for name, numbers in truth.groups(lambda run: run.user):
        _compare(found, "/report user", numbers, users.get((name,), {}))
    for key, amount in truth.modes().items():
        _compare(found, "/report mode", {"amount": amount}, of("mode", "direction", "mode").get(key, {}))
    smallest = {"jobs": whole["jobs"], "core_hours": whole["core_hours"]}
    _compare(found, "/report class 0-1K", smallest, of("class", "name").get(("0-1K",), {}))
    loads = of("load", "kind", "name")
    for kind in kinds:
        unit = 1.0 if kind == "mdts" else 1e6
        shown = {name: row for (title, name), row in loads.items() if title == _SECTIONS[kind]}
        for name, numbers in truth.loads(kind):
            if name in shown:  # the report has the most loaded ones
                expected = {
                    "mean": numbers["mean"] / unit,
                    "used": numbers["mean_share"],
                    "largest": numbers["largest"] / unit,
                    "above": numbers["time_above_90"],
                }
                _compare(found, f"/report load of {kind}", expected, shown[name])


def _compare(
    found: dict[str, Number], page: str, numbers: Mapping[str, float], given: Mapping[str, Any]
) -> None:
    """Adds the errors of numbers by page and name; of 0 the error is that of the number itself."""
    for name, true in numbers.items():
        number, value = found.setdefault(f"{page} {name}", Number()), given.get(name)
        if value is None:
            number.absent += 1
        else:
            number.errors.append(float(value) / true - 1.0 if true else float(value))


def _pattern(name: str, role: str) -> str:
    """A class of nodes as the page has it."""
    return f"{name.rstrip('0123456789')}* ({role})"


def _bytes(outcome: Outcome) -> float:
    return sum(phase.amount for phase in outcome.phases if phase.kind != "metadata")


def _sums(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Amounts of jobs together, by their names in the report."""
    found = dict.fromkeys(("jobs", "core_hours", "read_bytes", "written_bytes", "metadata_operations"), 0.0)
    kinds = {"read": "read_bytes", "write": "written_bytes", "metadata": "metadata_operations"}
    for outcome in outcomes:
        found["jobs"] += 1
        found["core_hours"] += 4 * len(outcome.nodes) * (outcome.end - outcome.start) / 3600
        for phase in outcome.phases:
            found[kinds[phase.kind]] += phase.amount
    return found
