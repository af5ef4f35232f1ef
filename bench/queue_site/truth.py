"""The truth of each run: the site solved again without one thing after another."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

from bench.queue_site.hardware import META, NODES_A_HALF, READ, WRITE
from bench.queue_site.plan import Fault, Plan, Run
from bench.queue_site.simulate import Done, Key, Past, Simulation

SLOW, HEALTHY, USUAL = 1.3, 1.1, 1.15
"""A run is slow from `SLOW` times the time that it takes alone on a sound site, and the median of its
program's earlier runs, healthy below `HEALTHY` and `USUAL` times; between, it counts for neither."""
CAUSE, INNOCENT = 0.5, 0.1
"""Shares of the lost time that come back without a thing, if that is a cause, or innocent."""
HOGS = {
    "append": "N-1 neighbour", "dump": "bytes neighbour",
    "scan": "IOPS neighbour", "stat-storm": "metadata flood",
}  # fmt: skip
"""Programs of neighbours, which have no history and are not judged, and the kind of cause that they are."""
_DIFFUSE = 0.25
_FEWEST = 3


@dataclass(slots=True)
class Truth:
    """`state`: slow, healthy or marginal. `kind`: of the cause, or of what is injected and innocent.

    `ratio`: time in phases by that of the run alone; `beside`: by the median of earlier runs, None without
    these. `shares`: of the lost time that come back without a thing. `right`: any of these is the cause.
    """

    done: Done
    ratio: float
    beside: float | None
    state: str
    kind: str = ""
    shares: dict[Key, float] = field(default_factory=dict)
    right: set[Key] = field(default_factory=set)
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def run(self) -> Run:
        """The run."""
        return self.done.run


def truths(past: Past) -> list[Truth]:
    """The truth of every run, by number."""
    made: dict[int, Truth] = {}
    earlier: dict[str, list[float]] = defaultdict(list)
    alone: dict[int, float] = {}
    for done in sorted(past.done.values(), key=lambda d: past.started[d.run.number]):
        run = done.run
        if run.program.name.rstrip("0123456789") in HOGS:
            made[run.number] = Truth(done, 1.0, None, "marginal", numbers=_numbers(done))
            continue
        alone[run.number] = _alone(past, run)
        known = earlier[run.program.name]
        ratio = done.io_seconds / alone[run.number]
        beside = done.io_seconds / median(known) if len(known) >= _FEWEST else None
        state = "marginal"
        if beside is not None and ratio >= SLOW and beside >= SLOW:
            state = "slow"
        elif ratio < HEALTHY and (beside is None or beside < USUAL):
            state = "healthy"
        if state != "slow":
            known.append(done.io_seconds)
        made[run.number] = Truth(done, ratio, beside, state, numbers=_numbers(done))
    wanted: dict[Key, set[int]] = defaultdict(set)
    for truth in made.values():
        for key in _candidates(past, truth) if truth.state == "slow" else ():
            wanted[key].add(truth.run.number)
    for key, runs in wanted.items():
        for number, seconds in past.io_seconds(frozenset({key}), runs).items():
            slow = made[number].done.io_seconds
            made[number].shares[key] = (slow - seconds) / (slow - alone[number])
    for truth in made.values():
        _conclude(past.plan, truth)
    return [made[number] for number in sorted(made)]


def _alone(past: Past, run: Run) -> float:
    """Time in phases of a run alone on a sound site, as its program usually does it."""
    everything = {("run", other.number) for other in past.plan.runs} - {("run", run.number)}
    everything |= {("fault", at) for at in range(len(past.plan.faults))} | {("own", run.number)}
    simulation = Simulation(past.plan, frozenset(everything))
    simulation.now = past.started[run.number]
    simulation.started = dict(past.started)
    while not simulation.over:
        simulation.advance(simulation.now + 60)
    return simulation.done[run.number].io_seconds


def _candidates(past: Past, truth: Truth) -> list[Key]:
    """What ran or acted in its time, and shares a part of its path."""
    run, begin, end = truth.run, past.started[truth.run.number], truth.done.end
    keys: list[Key] = [("own", run.number)] if run.change else []
    for at, fault in enumerate(past.plan.faults):
        if fault.start < end and begin < fault.end and on_path(fault, run):
            keys.append(("fault", at))
    for number, other in past.done.items():
        together = past.started[number] < end and begin < other.end and other.run is not run
        if together and _meet(run, other.run):
            keys.append(("run", number))
    return keys


def _meet(one: Run, other: Run) -> bool:
    """Whether two runs share a forwarder, an OST or an MDT."""
    same_osts = not set(one.osts).isdisjoint(other.osts)
    return same_osts or bool(_behind(one) & _behind(other)) or bool(_mdt(one) & _mdt(other))


def on_path(fault: Fault, run: Run) -> bool:
    """Whether a fault is on the path of a run."""
    target = {"ost": run.osts, "forwarder": _behind(run), "node": run.nodes}.get(fault.kind)
    return fault.mdt in _mdt(run) if target is None else fault.target in target


def _behind(run: Run) -> set[int]:
    return {node // (2 * NODES_A_HALF) for node in run.nodes}


def _mdt(run: Run) -> set[int]:
    return {run.program.mdt} if any(p.kind == META for p in run.program.phases) else set()


def _conclude(plan: Plan, truth: Truth) -> None:
    """Sets what is right, and the kind."""
    best = max(truth.shares.values(), default=0.0)
    injected = plan.injected.get(truth.run.number, "")
    if truth.state == "slow":
        if best < _DIFFUSE:
            truth.state = "marginal"
        else:
            least = min(CAUSE, CAUSE * best) if best < CAUSE else CAUSE
            truth.right = {key for key, share in truth.shares.items() if share >= least}
            kinds = {_kind(plan, truth.run, key) for key in truth.right}
            truth.kind = kinds.pop() if len(kinds) == 1 else "either of several"
            return
    truth.kind = injected if truth.state == "healthy" and injected else truth.state


def _kind(plan: Plan, run: Run, key: Key) -> str:
    if key[0] == "own":
        return f"own {run.change}"
    if key[0] == "fault":
        kind = plan.faults[key[1]].kind
        return "login flood" if kind == "login" else f"slow {'OST' if kind == 'ost' else kind}"
    name = next(r.program.name for r in plan.runs if r.number == key[1])
    return HOGS.get(name.rstrip("0123456789"), "ordinary neighbour")


def _numbers(done: Done) -> dict[str, float]:
    """Volumes and rates as the job page has them, without what is 0."""
    phases = done.run.phases(usual=False)
    requests = dict.fromkeys((READ, WRITE, META), 0.0)
    moved = dict(requests)
    for phase in phases:
        of_all = sum(round(phase.requests * spread) for spread in done.run.spread)
        requests[phase.kind] += of_all
        moved[phase.kind] += of_all * phase.bytes_
    data = done.seconds(READ) + done.seconds(WRITE)
    numbers = {
        "read_bytes": moved[READ],
        "written_bytes": moved[WRITE],
        "metadata_operations": requests[META],
        "mean_read_mib_per_second": moved[READ] / 2**20 / max(done.seconds(READ), 1e-9),
        "mean_written_mib_per_second": moved[WRITE] / 2**20 / max(done.seconds(WRITE), 1e-9),
        "mib_per_second": (moved[READ] + moved[WRITE]) / 2**20 / max(data, 1e-9),
        "mdops": requests[META] / max(done.seconds(META), 1e-9),
    }
    return {name: value for name, value in numbers.items() if value}
