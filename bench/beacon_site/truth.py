"""The truth of each run: how slow it was beside the same run without causes, and which causes acted on it."""

from dataclasses import dataclass

from bench.beacon_site.plan import Cause, Plan, Run
from bench.beacon_site.shape import MIB
from bench.beacon_site.simulate import Outcome, Simulation, cause_begin, cause_end

SLOW = 1.4
"""Times longer in its phases than without causes: slow. Below HEALTHY: healthy. Between: either."""
HEALTHY = 1.15
MANY_OPERATIONS = 1000
"""Of metadata on each node in a cycle, from which on an MDT matters to a run."""

LONG_SECONDS = 10.0
"""In phases of one kind, from which on a run has a rate of that kind."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Of one run. `kind`: of its cause; `none`, `several` or `marginal`. `causes`: all that acted on it.

    `numbers` by their names in the answers. Rates are amounts by the time in the phases of their kind, peaks
    the most of a whole second, MiB/s and operations a second; None where there is none.
    """

    run: Run
    kind: str
    causes: tuple[Cause, ...]
    slowdown: float
    numbers: dict[str, float | None]


def truths(plan: Plan, with_causes: Simulation, without: dict[int, float]) -> list[Truth]:
    """The truth of each run in the order of their numbers. `without`: seconds in phases without causes."""
    usual = _usual_seconds(plan, without)
    found = []
    for number, outcome in sorted(with_causes.outcomes.items()):
        run = outcome.run
        expected = without.get(number, usual.get(run.application.name, outcome.io_seconds))
        slowdown = outcome.io_seconds / expected
        loaded = expected / usual.get(run.application.name, expected)
        causes = tuple(cause for cause in plan.causes if _acts(cause, outcome, with_causes))
        found.append(Truth(run, kind_of(slowdown, causes, loaded), causes, slowdown, _numbers(outcome)))
    return found


def _usual_seconds(plan: Plan, without: dict[int, float]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {}
    for run in plan.runs:
        if run.number in without:
            seconds.setdefault(run.application.name, []).append(without[run.number])
    return {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}


def kind_of(slowdown: float, causes: tuple[Cause, ...], loaded: float) -> str:
    """The kind. `loaded`: times longer without causes than the application's middle run."""
    if slowdown < HEALTHY:
        return "none" if loaded < HEALTHY else "marginal"
    if slowdown < SLOW or not causes:
        return "marginal"
    kinds = {cause.kind for cause in causes}
    return kinds.pop() if len(kinds) == 1 else "several"


def _acts(cause: Cause, outcome: Outcome, simulation: Simulation) -> bool:
    """Whether a cause lies on the path of a run during its time."""
    run, plan = outcome.run, simulation.plan
    begin, end = cause_begin(cause, plan.shape), cause_end(cause, plan.shape)
    if cause.kind.startswith("own"):
        return cause.run == run.number
    if cause.run is not None:
        other = simulation.outcomes[cause.run]
        begin, end = other.start, round(other.end)
    if cause.run == run.number or not (outcome.start < end and begin < outcome.end):
        return False
    forwarder = run.lane // 2
    match cause.kind:
        case "slow OST":
            return cause.target in run.osts
        case "slow forwarder" | "N-1 neighbour":
            return cause.target == forwarder
        case "slow compute node":
            return cause.target in outcome.nodes
        case "IOPS neighbour":
            assert cause.run is not None
            return not set(simulation.outcomes[cause.run].run.osts).isdisjoint(run.osts)
        case _:
            busy = run.application.metadata_operations > MANY_OPERATIONS
            return busy and cause.target == run.application.mdt


def _numbers(outcome: Outcome) -> dict[str, float | None]:
    """Amounts of a run, and rates where it was busy for long enough to have one."""
    kinds = ("read", "write", "metadata")
    amount, seconds, peak = (dict.fromkeys(kinds, 0.0) for _ in range(3))
    for phase in outcome.phases:
        amount[phase.kind] += phase.amount
        seconds[phase.kind] += phase.end - phase.start
        peak[phase.kind] = max(peak[phase.kind], phase.peak)
    long = {kind: seconds[kind] >= LONG_SECONDS for kind in kinds}
    data, moved = seconds["read"] + seconds["write"], amount["read"] + amount["write"]
    found: dict[str, float | None] = {
        "read_bytes": amount["read"],
        "written_bytes": amount["write"],
        "metadata_operations": amount["metadata"],
        "mib_per_second": moved / data / MIB if data else None,
        "iops": moved / outcome.request_bytes / data if data else None,
        "mdops": amount["metadata"] / seconds["metadata"] if long["metadata"] else None,
    }
    for kind, name in (("read", "read"), ("write", "written")):
        found[f"mean_{name}_mib_per_second"] = amount[kind] / seconds[kind] / MIB if long[kind] else None
        found[f"peak_{name}_mib_per_second"] = peak[kind] / MIB if long[kind] else None
    for kind in kinds:
        found[f"{kind}_seconds"] = seconds[kind] if long[kind] else None
        found[f"{kind}_phases"] = sum(phase.kind == kind for phase in outcome.phases) if long[kind] else None
    return found
