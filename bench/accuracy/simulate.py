"""All fault and workload pairs of the simulation through `laggard`, `cdf` and `manhattan`, as a markdown
table.

    python -m bench.accuracy.simulate [--tuning] [--quick] [--detail] [--only TEXT] [--controls DAYS]

Without options: the reporting seeds, ten experiments a pair. `--quick` runs two a pair. `--detail` prints
who was missed and who was blamed, by run. `--only` keeps pairs whose `shape/fault/workload` contains TEXT.
`--controls` runs fault-free days instead: of the bursty mix on twelve LUNs, or of what `--only` keeps.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from bench.accuracy.judging import (
    UNTRAINED,
    Findings,
    Manhattan,
    Thresholds,
    over_metrics,
    settings_of,
    train_cdf,
    train_manhattan,
)
from bench.accuracy.measured import Measured, measure
from bench.accuracy.score import Outcome, episodes, outcome, rates, upper_rate, upper_share
from bench.accuracy.simulation.functions import profiles
from bench.accuracy.simulation.oracle import earlier, known
from bench.accuracy.simulation.plan import (
    FREE,
    PAIRS,
    REPORTING,
    RUNS_A_PAIR,
    TUNING,
    Pair,
    controls,
    training,
)
from bench.accuracy.simulation.scenario import Scenario
from bench.accuracy.simulation.shapes import SHAPES, Shape
from bench.accuracy.simulation.simulate import batches, simulate
from bench.machine import machine

METRICS = ("await",)
"""What is compared of LUNs: the default of the block layer."""
LEVELS = (("server-slow", "pvfs-2"), ("server-slow", "couplets"), ("controller-failover", "couplets"))
CONTROL = "jbod-12/none/hpc"
"""What fault-free days are run of without `--only`."""
DETECTORS = ("laggard", "cdf", "manhattan", "manhattan/spread")
UNTAUGHT = {"laggard", "manhattan/untrained"}
"""Those that are not trained; the latter is shown when it is asked for."""


class Bench:
    """Detectors, trained once a shape, and the outcomes that they had."""

    def __init__(self, detectors: Sequence[str], training_runs: int) -> None:
        self._detectors = detectors
        self._training_runs = training_runs
        self._cdf: dict[tuple[str, str], Thresholds] = {}
        self._manhattan: dict[tuple[str, str], Manhattan] = {}
        self.outcomes: dict[tuple[str, Pair], list[tuple[int, Outcome]]] = defaultdict(list)

    def train(self, shape: str) -> None:
        """Fault-free runs for the detectors that need thresholds."""
        if shape in {known_shape for known_shape, _ in self._cdf} or set(self._detectors) <= UNTAUGHT:
            return
        profiled, worst = [], defaultdict(list)
        for batch in batches(training(shape, self._training_runs)):
            recording, work, conditions = simulate(batch)
            for source in measure(recording, METRICS):
                worst[source.source.source].append(train_cdf(source, batch[0]))
            profiled.append((profiles(recording, work, conditions), batch))
        for name, found in worst.items():
            self._cdf[shape, name] = {
                metric: {c: max(one[metric][c] for one in found) for c in found[0][metric]}
                for metric in found[0]
            }
        if batch[0].shape.servers > 1:
            for divided in (False, True):
                name = "manhattan/spread" if divided else "manhattan"
                self._manhattan[shape, name] = train_manhattan(profiled, divided=divided)

    def run(self, batch: Sequence[Scenario], pair_of: Mapping[Scenario, Pair]) -> None:
        """Simulates a batch and lets every detector judge every run of it."""
        self.train(batch[0].shape.name)
        recording, work, conditions = simulate(batch)
        measured = measure(recording, METRICS)
        trained = {d: m for (shape, d), m in self._manhattan.items() if shape == batch[0].shape.name}
        trained["manhattan/untrained"] = UNTRAINED
        profile = profiles(recording, work, conditions)
        for run, scenario in enumerate(batch):
            for detector in self._detectors:
                if detector.startswith("manhattan"):
                    found = trained.get(detector)  # none where there is one server only
                    findings = [] if found is None else [found.find(profile, run, scenario)]
                else:
                    findings = self._over_metrics(measured, run, scenario, detector)
                scored = outcome(findings, recording.faulty[run], scenario.shape, scenario.start)
                self.outcomes[detector, pair_of[scenario]].append((scenario.seed, scored))

    def _over_metrics(
        self, measured: Sequence[Measured], run: int, scenario: Scenario, detector: str
    ) -> list[Findings]:
        tests = sum(len(source.metrics) * len(source.components) for source in measured)
        found = []
        for source in measured:
            thresholds = self._cdf.get((scenario.shape.name, source.source.source), {})
            settings = settings_of(scenario, detector, tests, thresholds)
            found.append(over_metrics(source, run, settings, scenario.shape.topology))
        return found


def table(bench: Bench, pairs: Sequence[Pair], detectors: Sequence[str]) -> str:
    """True / false positives in percent and median delay, by fault over the pairs visible in the counters."""
    oracle = known()
    lines = [
        f"| fault (shape) | pairs | {' | '.join(detectors)} |",
        f"|---|---|{'---|' * len(detectors)}",
    ]
    rows: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.fault == "none" or oracle[pair].in_counters:
            rows[pair.fault, pair.shape].append(pair)
    for (fault, shape), own in rows.items():
        cells = [_cell(bench, detector, own) for detector in detectors]
        lines.append(f"| {fault} ({shape}) | {len(own)} | {' | '.join(cells)} |")
    faulty = [pair for pair in pairs if pair.fault != "none"]
    visible = [pair for pair in faulty if oracle[pair].in_counters]
    sums = {
        "**all visible**": visible,
        "all that an earlier rule called visible": [pair for pair in faulty if pair in earlier()],
        "all": faulty,
    }
    for name, own in sums.items():
        cells = [_cell(bench, detector, own) for detector in detectors]
        lines.append(f"| {name} | {len(own)} | {' | '.join(cells)} |")
    for pair in pairs:
        if pair.fault != "none" and not oracle[pair].in_counters:
            cells = [_cell(bench, detector, [pair]) for detector in detectors]
            lines.append(
                f"| not visible: {pair.fault}, {pair.workload} ({pair.shape}): {oracle[pair].reason} | 1 | "
                f"{' | '.join(cells)} |"
            )
    asked = {(pair.fault, pair.shape) for pair in pairs}
    lines += ["", *(_levels(bench, fault, shape) for fault, shape in LEVELS if (fault, shape) in asked)]
    every = [scored for pair in visible for _, scored in bench.outcomes["laggard", pair]]
    if every:
        bound = upper_share(sum(scored.wrong for scored in every), len(every))
        lines.append(
            f"\n`laggard`: {len(every)} experiments, upper 95 % bound of false positives {bound:.2%}."
        )
    return "\n".join(lines)


def _levels(bench: Bench, fault: str, shape: str) -> str:
    """How often `laggard` blamed just the parent at fault."""
    runs = [
        (SHAPES[shape], seed, scored)
        for (detector, pair), own in bench.outcomes.items()
        if (detector, pair.fault, pair.shape) == ("laggard", fault, shape)
        for seed, scored in own
    ]
    right = sum(scored.parents == {_parent_at_fault(fault, of, seed)} for of, seed, scored in runs)
    return f"`laggard`, {fault} ({shape}): {right} of {len(runs)} blamed just the parent at fault."


def _parent_at_fault(fault: str, shape: Shape, seed: int) -> str:
    if fault == "server-slow":
        return shape.server_names[seed % shape.servers]
    return f"controller-{seed % shape.controllers + 1}"


def _cell(bench: Bench, detector: str, pairs: Sequence[Pair]) -> str:
    return str(rates(scored for pair in pairs for _, scored in bench.outcomes[detector, pair]))


def detail(bench: Bench, detectors: Sequence[str]) -> str:
    """Every run that went wrong."""
    lines = []
    for (detector, pair), runs in sorted(
        bench.outcomes.items(), key=lambda item: (item[0][0], str(item[0][1]))
    ):
        if detector not in detectors:
            continue
        for seed, scored in runs:
            if scored.missed or scored.blamed:
                lines.append(
                    f"{detector} {pair.shape}/{pair.fault}/{pair.workload} seed {seed}: "
                    f"missed {', '.join(scored.missed) or '-'}; blamed {', '.join(scored.blamed) or '-'}"
                )
    return "\n".join(lines)


def fault_free(days: int, seeds: range, pairs: Sequence[Pair]) -> str:
    """The false alarms of `laggard` over `days` of each pair, 15 s samples, and their upper bound."""
    lines, found = [], []
    for pair in pairs:
        alarms, components = 0, 0
        for batch in batches(controls(seeds, days, pair)):
            recording, _, _ = simulate(batch)
            luns, *_ = measure(recording, METRICS, network=False)
            for run, scenario in enumerate(batch):
                settings = settings_of(scenario, "laggard", len(luns.components), {})
                flags = over_metrics(luns, run, settings, scenario.shape.topology).stragglers["await"]
                alarms += episodes(flags)
                components += len(luns.components)
        lines.append(f"{pair.shape}, {pair.workload}: {_said(alarms, components)}")
        found.append((alarms, components))
        print(lines[-1], file=sys.stderr)
    if len(pairs) > 1:
        lines.append(f"together: {_said(*(sum(column) for column in zip(*found, strict=True)))}")
    return "\n".join(lines)


def _said(alarms: int, components: int) -> str:
    return (
        f"{components:,} fault-free component-days: {alarms} false alarms, {alarms / components:.2g} a "
        f"component-day, upper 95 % bound {upper_rate(alarms, components):.2g}"
    )


def main() -> None:
    """Prints the table, or the controls."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.simulate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--tuning", action="store_true", help="the seeds for tuning, not those for reporting")
    parser.add_argument("--quick", action="store_true", help="two experiments a pair, three of training")
    parser.add_argument("--detail", action="store_true", help="print who was missed and who was blamed")
    parser.add_argument("--only", default="", metavar="TEXT", help="only pairs with TEXT in their name")
    parser.add_argument("--detectors", default=",".join(DETECTORS), help="which detectors, by comma")
    parser.add_argument(
        "--controls", type=int, metavar="DAYS", help="fault-free group-days instead of faults"
    )
    asked = parser.parse_args()
    seeds = TUNING if asked.tuning else REPORTING
    print(machine("numpy", "scipy"))
    if asked.controls:
        kept = [pair for pair in FREE if (asked.only or CONTROL) in str(pair)]
        print(fault_free(asked.controls, seeds, kept))
        return
    pairs = [pair for pair in PAIRS if asked.only in str(pair)]
    detectors = tuple(asked.detectors.split(","))
    runs = 2 if asked.quick else RUNS_A_PAIR
    pair_of = {scenario: pair for pair in pairs for scenario in pair.scenarios(seeds, runs)}
    bench = Bench(detectors, 3 if asked.quick else RUNS_A_PAIR)
    for batch in batches(list(pair_of)):
        print(f"{batch[0].shape.name}, {batch[0].workload.name}: {len(batch)} runs", file=sys.stderr)
        bench.run(batch, pair_of)
    print(table(bench, pairs, detectors))
    if asked.detail:
        print(detail(bench, detectors))


if __name__ == "__main__":
    main()
