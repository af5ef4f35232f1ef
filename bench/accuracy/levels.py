"""The level of a fault, LUN, server, network or client, from several sources and from each alone: a table.

    python -m bench.accuracy.levels [--reporting] [--runs N] [--only TEXT] [--detail] [--oracle]

Simulated experiments of the closed loop, tuning seeds unless `--reporting`. LUNs, servers and links have the
counters of the other benches; besides, OSTs count the times of requests as `lustre_ost`, and clients those
of each OST as `lustre_osc`, compared over all clients in one `[[group]]`,
and in sum as `lustre_client`; their retransmits by server are `tcp_destination`.
All go through the product's judge, and its located causes are held against the truth when the fault ends.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.accuracy.judging import columns_of
from bench.accuracy.measured import Measured, measure
from bench.accuracy.score import upper_share
from bench.accuracy.simulation.closed_loop import PACKET_BYTES, Times, Work, run
from bench.accuracy.simulation.counters import PLAIN_RETRANSMITS, record
from bench.accuracy.simulation.faults import FAULTS, RECEIVED, WITH_TIMES
from bench.accuracy.simulation.oracle import known
from bench.accuracy.simulation.plan import ORACLE, REPORTING, TUNING, Pair
from bench.accuracy.simulation.scenario import Array, BoolArray, Conditions, Scenario
from bench.accuracy.simulation.shapes import SHAPES, Shape
from bench.accuracy.simulation.simulate import batches, conditions_of
from bench.accuracy.simulation.workloads import WORKLOADS
from bench.machine import machine
from laggard_aggregator.alarms.alarms import Key
from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.membership import PeerGroup
from laggard_aggregator.groups.topology import Branch, Topology
from laggard_aggregator.metrics.definition import Differences, Metric, SourceMetrics
from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.metrics.sums import joined
from laggard_aggregator.metrics.tcp import TCP_DESTINATION
from laggard_aggregator.status.location import Location
from laggard_aggregator.status.paths import located
from laggard_aggregator.status.straggler_list import standings

Cause = tuple[str, str]
"""Level and component."""

SOURCES_ALONE = {
    "await of LUNs": ("diskstats",),
    "times of OSTs": ("lustre_ost",),
    "network": ("tcp", "server", "tcp_destination"),
    "clients": ("lustre_osc", "lustre_client"),
}
_ONE_LUN = (
    *("none", "disk-hog", "disk-busy", "lun-slow-1.2", "lun-slow-1.5", "lun-slow-2", "lun-slow-4"),
    *("lun-slow-10", "lun-drift", "lun-intermittent", "raid-rebuild", "server-busy", "write-network-hog"),
    *("read-network-hog", "receive-pktloss", "send-pktloss", "client-slow", "server-cpu"),
)
_TWO_LUNS = (
    *("none", "lun-slow-1.5", "lun-slow-4", "server-slow", "server-busy", "write-network-hog"),
    *("read-network-hog", "receive-pktloss", "send-pktloss", "client-slow"),
)
PLAN = tuple(
    (shape, fault, workload)
    for shape, faults in (("pvfs", _ONE_LUN), ("pvfs-2", _TWO_LUNS))
    for fault in faults
    for workload in WORKLOADS
)
FIRST_SEED = 80_000
"""Of the seeds of a range: those of the other benches lie below."""
BATCH = 40
UNSEEN = {("server-busy", "hpc")}
"""Faults of WITH_TIMES that `seen` finds in less than 19 of 20 runs, by workload."""


def scenarios(seeds: range, runs: int, only: str) -> list[Scenario]:
    """`runs` experiments for each row of PLAN whose `shape/fault/workload` contains `only`."""
    return [
        Scenario(SHAPES[shape], WORKLOADS[workload], fault, seeds.start + FIRST_SEED + 100 * at + number)
        for at, (shape, fault, workload) in enumerate(PLAN)
        if only in f"{shape}/{fault}/{workload}"
        for number in range(runs)
    ]


def truth(scenario: Scenario, conditions: Conditions) -> Cause | None:
    """The cause of a scenario's fault; None without one."""
    if scenario.fault == "none":
        return None
    if scenario.fault == "client-slow":
        return "client", scenario.shape.client_names[conditions.faulty_client]
    lun = int(np.flatnonzero(conditions.faulty)[0])
    server = scenario.shape.server_names[scenario.shape.server_of[lun]]
    if {**FAULTS, **WITH_TIMES}[scenario.fault].level == "component":
        return "lun", scenario.shape.lun_names[lun]
    return "network" if "network" in scenario.fault or "pktloss" in scenario.fault else "server", server


@dataclass(frozen=True, slots=True)
class Outcome:
    """One experiment: the located causes by all sources and by each alone, when the fault ends.

    `first`: those of the first window of the fault that has any. `before`: any cause before the fault.
    """

    scenario: Scenario
    truth: Cause | None
    causes: frozenset[Cause]
    first: frozenset[Cause]
    alone: Mapping[str, frozenset[Cause]]
    before: bool
    evidence: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether exactly the fault is located."""
        return self.causes == frozenset(filter(None, (self.truth,)))

    @property
    def right_component(self) -> bool:
        """Whether causes are located on the faulty component or its node, and nowhere else."""
        if self.truth is None:
            return not self.causes
        return {_node(component) for _, component in self.causes} == {_node(self.truth[1])}


def _node(component: str) -> str:
    return component.partition("/")[0]


def requests(scenarios: Sequence[Scenario], times: Times, missing: BoolArray) -> tuple[Measured, ...]:
    """The sources of requests' times: `lustre_ost`, `lustre_osc` and `lustre_client`.

    A request is one of the block layer. `missing` (R, T, S): lost readings of servers.
    """
    one = scenarios[0]
    shape, (runs, ticks, clients, osts, _) = one.shape, times.parts.shape
    pairs = tuple(f"{client}/{ost}-osc" for client in shape.client_names for ost in shape.ost_names)
    flat = (runs, ticks, clients * osts, 2)
    names = tuple(f"{client}/lustre_client" for client in shape.client_names)
    of_osts = _measured("lustre_ost", shape.ost_names, times.parts.sum(axis=2), times.inside, one)
    gone = np.repeat(missing, shape.luns_per_server, axis=2).swapaxes(1, 2)
    for values in (*of_osts.metrics.values(), *of_osts.load.values()):
        values[gone] = np.nan
    return (
        of_osts,
        _measured("lustre_osc", pairs, times.parts.reshape(flat), times.seconds.reshape(flat), one),
        _measured("lustre_client", names, times.parts.sum(axis=3), times.seconds.sum(axis=3), one),
    )


def _measured(name: str, names: tuple[str, ...], parts: Array, seconds: Array, one: Scenario) -> Measured:
    """The latencies that a source makes of parts and their seconds (R, T, C, 2) as its counters have them."""
    source, prefix = SOURCES[name], "" if name == "lustre_ost" else "ost_"
    count, total_us = parts * one.workload.requests, seconds * one.workload.requests * 1e6
    columns = {
        field: values[..., at]
        for at, way in enumerate(("read", "write"))
        for field, values in (
            (f"{prefix}{way}_samples", count),
            (f"{prefix}{way}_sum", total_us),
            (f"{way}_bytes_samples", count),
            (f"{way}_bytes_sum", parts * one.workload.part_bytes),
        )
    }
    rises = np.stack([values.reshape(-1) for values in columns.values()], axis=1)
    differences = Differences(tuple(columns), rises, np.full(len(rises), one.interval_seconds))

    def of(metric: Metric) -> Array:
        return metric.derive(differences).reshape(parts.shape[:3]).swapaxes(1, 2).copy()

    metrics, load = SourceMetrics.kept(source, ("read_latency", "write_latency"))
    return Measured(
        source, names, {n: of(m) for n, m in metrics.items()}, {n: of(m) for n, m in load.items()}
    )


def visible(scenario: Scenario) -> bool:
    """False for pairs of fault and workload that an observer who knows the truth does not see."""
    pair = Pair(scenario.shape.name, scenario.fault, scenario.workload.name)
    if scenario.fault in WITH_TIMES:
        return (scenario.fault, scenario.workload.name) not in UNSEEN
    return pair not in known() or known()[pair].in_counters


def destinations(scenarios: Sequence[Scenario], conditions: Sequence[Conditions], work: Work) -> Measured:
    """Clients' retransmits by server (`tcp_destination`): of written data, and of a segment a request."""
    one, shape = scenarios[0], scenarios[0].shape
    chance = [np.random.default_rng((scenario.seed, 5)) for scenario in scenarios]
    parts = (
        work.parts[:, : one.samples].reshape(len(scenarios), one.samples, shape.servers, -1, 2).sum(axis=3)
    )
    sent = parts[..., 1] * one.workload.part_bytes / PACKET_BYTES + parts.sum(axis=-1) * one.workload.requests
    lost = np.stack([c.loss[..., RECEIVED] for c in conditions]) + PLAIN_RETRANSMITS
    again = np.stack([g.poisson(n * p) for g, n, p in zip(chance, sent, lost, strict=True)])
    amounts = {"total_retrans": again + 0.0, "data_segs_out": np.floor(sent)}
    values = []
    for run_ in range(len(scenarios)):
        own = {name: each[run_].T for name, each in amounts.items()}
        columns, _ = joined(TCP_DESTINATION, ("retransmits",), own, one.interval_seconds)
        metric = TCP_DESTINATION.metrics["retransmits"]
        values.append(metric.values("retransmits", columns, DetectSettings().shift_samples))
    return Measured(TCP_DESTINATION, tuple(addresses(shape)), {"retransmits": np.stack(values)}, {})


def addresses(shape: Shape) -> dict[str, str]:
    """Servers by the sums of what is sent to them."""
    return {f"*/10.0.0.{s + 1}": server for s, server in enumerate(shape.server_names)}


def outcomes(batch: Sequence[Scenario]) -> list[Outcome]:
    """The outcome of each scenario; all of one shape and workload."""
    conditions = [conditions_of(scenario) for scenario in batch]
    shape = batch[0].shape
    times = Times.of(len(batch), batch[0].samples, shape.luns)
    work = run(batch, conditions, times)
    recording = record(batch, conditions, work)
    measured = (
        *measure(recording, ("await",)),
        *requests(batch, times, recording.missing),
        destinations(batch, conditions, work),
    )
    return [_outcome(measured, at, batch[at], conditions[at]) for at in range(len(batch))]


def _outcome(measured: Sequence[Measured], at: int, scenario: Scenario, conditions: Conditions) -> Outcome:
    tests = sum(len(each.metrics) * len(each.components) for each in measured)
    settings = DetectSettings(interval_seconds=scenario.interval_seconds, tests_at_once=tests)
    shape = scenario.shape
    groups = {
        each.source.source: PeerGroup(
            each.source.source, each.source.source, "", tuple(each.metrics), settings
        )
        for each in measured
    }
    hosts = {
        ost: shape.server_names[server] for ost, server in zip(shape.ost_names, shape.server_of, strict=True)
    }
    topology = Topology(
        [*shape.topology.branches, *(Branch(re.escape(a), {"node": s}) for a, s in addresses(shape).items())]
    )
    judge = Judge(dict.fromkeys(groups, settings), topology=topology)
    causes: frozenset[Cause] = frozenset()
    first: frozenset[Cause] = frozenset()
    alone: dict[str, frozenset[Cause]] = {}
    before = False
    said: tuple[str, ...] = ()
    for end in range(settings.window_samples, scenario.samples + 1, settings.shift_samples):
        seconds = end * scenario.interval_seconds
        if seconds > scenario.end:
            break
        judged = [j for each in measured for j in judge.evaluate(_window(judge, each, at, end, settings))]
        where = _located(judge, judged, groups, hosts, topology)
        causes = _causes(where)
        if seconds <= scenario.start:
            before |= bool(causes)
        elif not first:
            first = causes
        said = tuple(sorted({each.evidence for each in where.values()}))
    for name, sources in SOURCES_ALONE.items():
        own = {source: groups[source] for source in sources if source in groups}
        some = [j for j in judged if j.group in own]
        alone[name] = _causes(_located(judge, some, own, hosts, topology))
    return Outcome(scenario, truth(scenario, conditions), causes, first, alone, before, said)


def _window(judge: Judge, each: Measured, at: int, end: int, settings: DetectSettings) -> GroupWindow:
    group = each.source.source
    longest = max(judge.history_samples(group, name) for name in each.metrics)
    columns, history = columns_of(end, settings, longest)
    return GroupWindow(
        group,
        each.components,
        (end - settings.window_samples) * settings.interval_seconds,
        end * settings.interval_seconds,
        history,
        {name: values[at][:, columns] for name, values in each.metrics.items()},
        {name: values[at][:, columns] for name, values in each.load.items()},
        {name: each.source.metrics[name].worse for name in each.metrics},
        explanations=frozenset(name for name in each.metrics if each.source.metrics[name].explains),
    )


def _located(
    judge: Judge,
    judged: Sequence[Judgement],
    groups: Mapping[str, PeerGroup],
    hosts: Mapping[str, str],
    topology: Topology,
) -> dict[Key, Location]:
    alarms = {key: alarm for key, alarm in judge.alarms.standing.items() if key[0] in groups}
    rows = standings(judged, alarms, str, lambda *_: None)
    return located(rows, judged, groups, topology, hosts)


def _causes(where: Mapping[Key, Location]) -> frozenset[Cause]:
    return frozenset((each.level, each.component) for each in where.values())


def table(found: Sequence[Outcome]) -> str:
    """Shares of runs that are right, by fault, and in all."""
    rows: dict[str, list[Outcome]] = defaultdict(list)
    for each in found:
        unseen = "" if visible(each.scenario) or each.truth is None else "not visible: "
        rows[f"{unseen}{each.scenario.fault} ({each.scenario.shape.name})"].append(each)
    lines = [
        f"| fault (shape) | level | runs | component | component and level | at the alarm | "
        f"{' | '.join(SOURCES_ALONE)} |",
        f"|---|---|---|---|---|---|{'---|' * len(SOURCES_ALONE)}",
    ]
    lines += [_row(name, own) for name, own in sorted(rows.items(), key=lambda row: row[0].startswith("not"))]
    faulty = [each for each in found if each.truth is not None and visible(each.scenario)]
    for level in ("lun", "server", "network", "client"):
        own = [each for each in faulty if each.truth is not None and each.truth[0] == level]
        if own:
            lines.append(_row(f"**{level}**", own))
    if faulty:
        lines.append(_row("**all visible faults**", faulty))
        wrong = sum(not each.right for each in faulty)
        lines.append(
            f"\nNot right: {wrong} of {len(faulty)}, upper 95 % bound {upper_share(wrong, len(faulty)):.1%}."
        )
    return "\n".join(lines)


def _row(name: str, own: Sequence[Outcome]) -> str:
    levels = sorted({each.truth[0] if each.truth else "-" for each in own})

    def share(right: Sequence[bool]) -> str:
        return f"{100 * sum(right) / len(right):.1f}"

    expected = [frozenset(filter(None, (each.truth,))) for each in own]
    cells = [
        name,
        ", ".join(levels),
        str(len(own)),
        share([each.right_component for each in own]),
        share([each.right for each in own]),
        share([each.first == right for each, right in zip(own, expected, strict=True)]),
        *(
            share([each.alone[source] == right for each, right in zip(own, expected, strict=True)])
            for source in SOURCES_ALONE
        ),
    ]
    return f"| {' | '.join(cells)} |"


def detail(found: Sequence[Outcome]) -> str:
    """Every run that is not right."""
    lines = []
    for each in found:
        if not each.right:
            s = each.scenario
            lines.append(
                f"{s.shape.name}/{s.fault}/{s.workload.name} seed {s.seed}: expected {each.truth}, located "
                f"{sorted(each.causes) or 'nothing'}{' (some before the fault)' if each.before else ''}"
            )
            lines += [f"    {one}" for one in each.evidence]
    return "\n".join(lines)


def seen(shape: Shape, fault: str, workload: str) -> tuple[int, float]:
    """Runs of 20 whose fault lies beyond all but one of 40 fault-free runs, and that bound, a log ratio.

    As the oracle of the other benches: mean times over the fault against the median of the peers.
    """

    def deviations(name: str, runs: int) -> tuple[Array, list[Conditions]]:
        own = [
            Scenario(shape, WORKLOADS[workload], name, ORACLE.start + FIRST_SEED + at) for at in range(runs)
        ]
        conditions, times = [conditions_of(each) for each in own], Times.of(runs, own[0].samples, shape.luns)
        run(own, conditions, times)
        during = slice(round(own[0].start), round(own[0].end))
        if fault == "client-slow":
            parts, seconds = (each[:, during].sum(axis=(1, 3, 4)) for each in (times.parts, times.seconds))
        else:
            by_server = (runs, shape.servers, -1)
            parts = times.parts[:, during].sum(axis=(1, 2, 4)).reshape(by_server).sum(axis=2)
            seconds = times.inside[:, during].sum(axis=(1, 3)).reshape(by_server).sum(axis=2)
        mean = np.log(seconds / parts)
        return mean - np.median(mean, axis=1, keepdims=True), conditions

    bound = float(np.sort(deviations("none", 40)[0].max(axis=1))[-2])
    found, conditions = deviations(fault, 20)
    faulty = [
        each.faulty_client if fault == "client-slow" else int(shape.server_of[np.flatnonzero(each.faulty)[0]])
        for each in conditions
    ]
    return int((found[np.arange(20), faulty] > bound).sum()), bound


def main() -> None:
    """Prints the table, or which faults can be seen at all."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.levels", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--reporting", action="store_true", help="the seeds for reporting, not those for tuning"
    )
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="experiments a row of the plan (5)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only those with TEXT in their name")
    parser.add_argument("--detail", action="store_true", help="print the runs that are not right")
    parser.add_argument("--oracle", action="store_true", help="how many of 20 faults of times can be seen")
    asked = parser.parse_args()
    print(machine("numpy", "scipy"))
    if asked.oracle:
        for shape, fault, workload in PLAN:
            if fault in WITH_TIMES and asked.only in f"{shape}/{fault}/{workload}":
                count, bound = seen(SHAPES[shape], fault, workload)
                print(f"{shape}/{fault}/{workload}: {count} of 20 beyond {bound:.2f}", flush=True)
        return
    found: list[Outcome] = []
    for batch in batches(scenarios(REPORTING if asked.reporting else TUNING, asked.runs, asked.only)):
        for at in range(0, len(batch), BATCH):
            found += outcomes(batch[at : at + BATCH])
        print(f"{batch[0].shape.name}, {batch[0].workload.name}: {len(batch)} runs", file=sys.stderr)
    print(table(found))
    if asked.detail:
        print(detail(found))


if __name__ == "__main__":
    main()
