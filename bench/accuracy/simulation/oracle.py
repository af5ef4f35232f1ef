"""Which fault and workload pairs are visible at all in the counters collected: decided from the truth.

A run's fault is visible in a metric when every faulty component, over the fault's 60 s blocks, lies on the
worse side of its healthy peers by at least 15 % (log ratio of means) and by two standard deviations of
those peers' blocks, which hold both how much peers differ and how much each varies (Cohen's d of 2: the
middle of one lies beyond 98 % of the other). Different components may be seen in different metrics. A pair
is visible when at least five in six of the oracle's runs are. No detector is asked, and no seed of the
reporting ones is looked at.

    python -m bench.accuracy.simulation.oracle      writes visible.json beside this file
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.accuracy.measured import Measured, measure
from bench.accuracy.simulation.faults import FAULTS
from bench.accuracy.simulation.functions import CALLED, SAMPLED, profiles
from bench.accuracy.simulation.plan import ORACLE, PAIRS, Pair
from bench.accuracy.simulation.scenario import Array, BoolArray, Scenario
from bench.accuracy.simulation.simulate import batches, simulate

BLOCK_SECONDS = 60
LEAST_RATIO = float(np.log(1.15))
LEAST_EFFECT = 2.0
RUNS = 6
LEAST_RUNS = 5

BLOCK_METRICS = ("await", "r_await", "w_await", "svctm")
VISIBLE = Path(__file__).with_name("visible.json")


@dataclass(frozen=True, slots=True)
class Visibility:
    """In which sources (`diskstats`, `net`, `profile`) a pair is visible, and in which metrics best.

    `effect`: of the least visible faulty component, its best in diskstats or net; the median over runs.
    """

    shape: str
    fault: str
    workload: str
    sources: tuple[str, ...]
    metrics: tuple[str, ...]
    effect: float

    @property
    def in_counters(self) -> bool:
        """Whether diskstats and net are enough to see it."""
        return bool(set(self.sources) - {"profile"})

    @property
    def reason(self) -> str:
        """Why it is not visible in counters; empty where it is."""
        if self.in_counters:
            return ""
        if self.effect > 0:
            return f"its least visible LUN is {self.effect} standard deviations off, in too few runs beyond 2"
        where = "it shows in function profiles only" if self.sources else "it shows nowhere"
        return f"no disk or network counter differs by 15 %, {where}"


def effects(values: Array, faulty: BoolArray, span: slice, worse: int) -> Array:
    """By faulty component, how many standard deviations it lies beyond its healthy peers; 0 under 15 %.

    `values` (C, T), NaN where missing, 0 where idle; `faulty` (C,). With `worse` 0 either side counts. A
    block in which a healthy peer did nothing says nothing.
    """
    blocks = values[:, span][:, : (span.stop - span.start) // BLOCK_SECONDS * BLOCK_SECONDS]
    blocks = np.where(blocks > 0, blocks, np.nan).reshape(len(values), -1, BLOCK_SECONDS)
    told = np.isfinite(blocks).sum(axis=2)
    means = np.where(told > 0, np.nansum(blocks, axis=2) / np.maximum(told, 1), np.nan)
    logs = np.log(means[:, np.isfinite(means[~faulty]).all(axis=0)])
    if logs.size == 0:
        return np.zeros(int(faulty.sum()))
    healthy = logs[~faulty] - np.median(logs[~faulty], axis=0)
    beyond = logs[faulty] - np.median(logs[~faulty], axis=0)
    there = np.isfinite(beyond).sum(axis=1)
    ahead = np.nansum(beyond, axis=1) / np.maximum(there, 1) - healthy.mean()
    ahead = np.abs(ahead) if worse == 0 else worse * ahead
    effect: Array = np.where(ahead >= LEAST_RATIO, ahead / max(float(healthy.std()), 1e-3), 0.0)
    return effect


def judge(scenarios: Sequence[Scenario]) -> list[dict[str, dict[str, Array]]]:
    """By run, source and metric: the effect for each faulty LUN, or the faulty LUNs' servers."""
    recording, work, conditions = simulate(scenarios)
    measured = list(measure(recording, BLOCK_METRICS))
    shape = scenarios[0].shape
    found: list[dict[str, dict[str, Array]]] = []
    profile = profiles(recording, work, conditions) if shape.servers > 1 else None
    for run, scenario in enumerate(scenarios):
        span = slice(round(scenario.start / scenario.interval_seconds), round(scenario.end))
        faulty = recording.faulty[run]
        servers = np.zeros(shape.servers, dtype=np.bool_)
        servers[shape.server_of[faulty]] = True
        at = np.cumsum(servers)[shape.server_of[faulty]] - 1  # each faulty LUN's server among the faulty ones
        seen: dict[str, dict[str, Array]] = {"diskstats": {}, "net": {}, "profile": {}}
        for source in measured:
            kind = "diskstats" if source.source.source == "diskstats" else "net"
            if kind == "net" and FAULTS[scenario.fault].level != "server":
                continue  # other servers' traffic does not say which LUN
            own, rows = (faulty, slice(None)) if kind == "diskstats" else (servers, at)
            for name in source.metrics:
                seen[kind][name] = _effects(source, name, run, own, span)[rows]
        if profile is not None:
            for kind, names in (("samples", SAMPLED), ("count", CALLED), ("time", CALLED)):
                values = getattr(profile, kind)[run]
                for f, function in enumerate(names):
                    if values[span, :, f].sum(axis=0).max() >= 100:
                        key = f"{kind} of {function}"
                        seen["profile"][key] = effects(values[..., f].T + 0.01, servers, span, 0)[at]
        found.append(seen)
    return found


def _effects(source: Measured, name: str, run: int, faulty: BoolArray, span: slice) -> Array:
    return effects(source.metrics[name][run], faulty, span, source.source.metrics[name].worse)


def visibility(pair: Pair, runs: Sequence[dict[str, dict[str, Array]]]) -> Visibility:
    """What the runs of a pair say together."""
    sources = []
    for source in ("diskstats", "net", "profile"):
        best = [np.max([*run[source].values()], axis=0, initial=0.0) for run in runs if run[source]]
        if sum(bool((b >= LEAST_EFFECT).all()) for b in best) >= LEAST_RUNS:
            sources.append(source)
    counted = [{**run["diskstats"], **run["net"]} for run in runs]
    together = [float(np.max(list(run.values()), axis=0).min()) for run in counted]
    by_metric = {name: float(np.median([run[name].min() for run in counted])) for name in counted[0]}
    if not {"diskstats", "net"} & set(sources) and sum(t >= LEAST_EFFECT for t in together) >= LEAST_RUNS:
        sources.append("diskstats and net together")
    ranked = sorted(by_metric, key=lambda name: -by_metric[name])
    metrics = tuple(name for name in ranked if by_metric[name] >= LEAST_EFFECT)[:3]
    return Visibility(
        pair.shape, pair.fault, pair.workload, tuple(sources), metrics, round(float(np.median(together)), 1)
    )


def known() -> dict[Pair, Visibility]:
    """What the committed verdicts of the oracle say. Raises OSError without them."""
    rows = (Visibility(**row) for row in json.loads(VISIBLE.read_text()))
    return {Pair(row.shape, row.fault, row.workload): row for row in rows}


def main() -> None:
    """Asks the oracle about every pair, and writes down what it says."""
    pairs = [pair for pair in PAIRS if pair.fault != "none"]
    found: dict[int, dict[str, dict[str, Array]]] = {}
    scenarios = {s.seed: pair for pair in pairs for s in pair.scenarios(ORACLE, RUNS)}
    for batch in batches([s for pair in pairs for s in pair.scenarios(ORACLE, RUNS)]):
        for scenario, seen in zip(batch, judge(batch), strict=True):
            found[scenario.seed] = seen
        print(f"{batch[0].shape.name} {batch[0].workload.name}: {len(batch)} runs", flush=True)
    rows = []
    for pair in pairs:
        runs = [found[seed] for seed, own in scenarios.items() if own == pair]
        rows.append(asdict(visibility(pair, runs)))
    VISIBLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
