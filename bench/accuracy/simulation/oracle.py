"""Which fault and workload pairs an observer could see who knows the truth; the others are asked of no one.

The observer knows what no detector does: when the fault begins and ends, at which level it is, who is
healthy, and how far healthy components stray in 100 fault-free runs of the same shape and workload. Over the
whole fault he holds each one against its healthy peers in every metric (`standings`), and calls it faulty
where it lies farther out than any component of all but one in a hundred fault-free runs, all metrics taken
together. There is no other threshold: what the fault-free runs say is harmless is harmless. A pair is
visible when he finds every faulty component in 39 of 40 runs or more. No detector is asked, and his seeds
are his own.

    python -m bench.accuracy.simulation.oracle      writes visible.json beside this file; 20 minutes of CPU
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bench.accuracy.measured import Measured, measure
from bench.accuracy.simulation.counters import Recording
from bench.accuracy.simulation.faults import FAULTS
from bench.accuracy.simulation.functions import CALLED, SAMPLED, Profiles, profiles
from bench.accuracy.simulation.plan import ORACLE, PAIRS, Pair
from bench.accuracy.simulation.scenario import Array, BoolArray, Scenario
from bench.accuracy.simulation.simulate import batches, simulate

FAULT_RUNS = 40
LEAST_SEEN = 39
FREE_RUNS = 100
WRONG_RUNS = 1
"""Of the fault-free runs, in how many a healthy component may lie beyond the thresholds."""
BLOCKS_SECONDS = (10, 60)
"""Long blocks average chance away where there is little to do; short ones tell spikes from the rest."""
DISK_METRICS = ("await", "r_await", "w_await", "svctm")
DISK, NETWORK, PROFILE = "disk", "network", "profile"
VISIBLE = Path(__file__).with_name("visible.json")
EARLIER = Path(__file__).with_name("visible_earlier.json")

Span = tuple[int, int]
Standing = dict[tuple[str, str], Array]
"""By source (DISK, NETWORK, PROFILE) and what is looked at, (L,): how far each LUN, or its server, is out."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a run in each span that was asked for, and the truth (L,)."""

    standings: Mapping[Span, Standing]
    faulty: BoolArray


@dataclass(frozen=True, slots=True)
class Visibility:
    """In how many of `runs` every faulty component is seen in the counters of disks and network.

    `seen_in_profiles`: in how many function profiles alone show them; looked up only where counters do not.
    `best`: by what alone most are seen. `beyond`: how far the least visible component lies beyond its
    threshold where it lies farthest, as a share of the threshold; the median over runs.
    """

    shape: str
    fault: str
    workload: str
    runs: int
    seen: int
    seen_in_profiles: int
    best: str
    beyond: float

    @property
    def pair(self) -> Pair:
        """Whose it is."""
        return Pair(self.shape, self.fault, self.workload)

    @property
    def in_counters(self) -> bool:
        """Whether disk and network counters are enough to see it."""
        return self.seen >= LEAST_SEEN * self.runs / FAULT_RUNS

    @property
    def reason(self) -> str:
        """Why it is not visible in counters; empty where it is."""
        if self.in_counters:
            return ""
        said = f"who knows the truth finds every faulty one in {self.seen} of {self.runs} runs"
        return f"{said}, in function profiles in {self.seen_in_profiles}" if self.seen_in_profiles else said


def standings(values: Array, peers: BoolArray) -> Array:
    """Log ratios to the median of the other healthy ones, over the columns: mean and median, (2, C).

    `values` (C, B), NaN where missing, 0 where idle; `peers` (C,): the healthy ones. The mean sees what comes
    and goes, and the median is not led astray by spikes. A column in which a component did nothing says
    nothing of it; 0 for one of which nothing is said at all.
    """
    logs = np.full(values.shape, np.nan)
    told = np.isfinite(values) & (values > 0)
    logs[told] = np.log(values[told])
    ahead = np.empty_like(logs)
    for c in range(len(values)):
        others = peers.copy()
        others[c] = False
        ahead[c] = logs[c] - _middle(logs[others].T)
    known = np.isfinite(ahead)
    mean = np.where(known, ahead, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return np.stack([mean, np.nan_to_num(_middle(ahead))])


def _middle(values: Array) -> Array:
    """The median of each row over what is not NaN; NaN where nothing is."""
    ordered = np.sort(values, axis=1)  # NaN last
    count = np.isfinite(ordered).sum(axis=1)[:, None]
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, values.shape[1] - 1)
    both = np.take_along_axis(ordered, low, 1) + np.take_along_axis(ordered, high, 1)
    middle: Array = 0.5 * both[:, 0]
    return middle


def looked_at(scenarios: Sequence[Scenario], spans: Sequence[Span], *, profiled: bool) -> Iterator[Look]:
    """What is seen of each run in each of `spans` (seconds, multiples of 60)."""
    recording, work, conditions = simulate(scenarios)
    shape = scenarios[0].shape
    disks = {
        length: measure(_every(recording, length), DISK_METRICS, network=False)[0]
        for length in BLOCKS_SECONDS
    }
    networks = measure(recording, DISK_METRICS)[1:]
    profile = profiles(recording, work, conditions) if profiled and shape.servers > 1 else None
    for run in range(len(scenarios)):
        healthy = ~recording.faulty[run]
        servers = np.ones(shape.servers, dtype=np.bool_)
        servers[shape.server_of[~healthy]] = False
        found: dict[Span, Standing] = {}
        for span in spans:
            seen = _of_disks(disks, run, span, healthy)
            of_servers = _of_networks(networks, run, span, servers)
            if profile is not None:
                of_servers |= _of_profiles(profile, run, span, servers)
            found[span] = seen | {key: row[shape.server_of] for key, row in of_servers.items()}
        yield Look(found, ~healthy)


def _every(recording: Recording, seconds: int) -> Recording:
    """What an agent would have collected that reads so seldom; of one that reads every second."""
    kept = slice(seconds - 1, None, seconds)
    scenarios = tuple(
        replace(one, interval_seconds=float(seconds), samples=one.samples // seconds)
        for one in recording.scenarios
    )
    return Recording(
        scenarios,
        recording.disk[:, kept],
        recording.net[:, kept],
        recording.missing[:, kept],
        recording.faulty,
    )


def _of_disks(disks: Mapping[int, Measured], run: int, span: Span, healthy: BoolArray) -> Standing:
    seen: Standing = {}
    for length, measured in disks.items():
        columns = slice(span[0] // length, span[1] // length)
        for name, values in measured.metrics.items():
            mean, median = standings(values[run][:, columns], healthy)
            seen[DISK, f"{name}, mean of {length} s"] = mean
            seen[DISK, f"{name}, median of {length} s"] = median
    return seen


def _of_networks(networks: Sequence[Measured], run: int, span: Span, healthy: BoolArray) -> Standing:
    seen: Standing = {}
    for measured in networks:
        for name, values in measured.metrics.items():
            blocks = _blocks(values[run][:, slice(*span)])
            mean, median = measured.source.metrics[name].worse * standings(blocks, healthy)
            seen[NETWORK, f"{name}, mean"] = mean
            seen[NETWORK, f"{name}, median"] = median
    return seen


def _of_profiles(profile: Profiles, run: int, span: Span, healthy: BoolArray) -> Standing:
    """Either side counts; functions with fewer than 100 calls or samples on every server say nothing."""
    seen: Standing = {}
    for kind, names in (("samples", SAMPLED), ("count", CALLED), ("time", CALLED)):
        values = getattr(profile, kind)[run][slice(*span)]
        for f in np.flatnonzero(values.sum(axis=0).max(axis=0) >= 100):
            seen[PROFILE, f"{kind} of {names[f]}"] = np.abs(
                standings(_blocks(values[:, :, f].T + 0.01), healthy)[0]
            )
    return seen


def _blocks(values: Array) -> Array:
    """The means of `values` (C, T) over blocks of 10 s; NaN where nothing is known."""
    length = BLOCKS_SECONDS[0]
    blocks = values.reshape(len(values), -1, length)
    known = np.isfinite(blocks)
    count = known.sum(axis=2)
    return np.where(count > 0, np.where(known, blocks, 0.0).sum(axis=2) / np.maximum(count, 1), np.nan)


def thresholds(free: Sequence[Standing], sources: Sequence[str]) -> dict[tuple[str, str], float]:
    """Beyond what a component is faulty, by what is looked at: in one run in a hundred any is, in anything.

    `free`: fault-free runs. Each thing that is looked at has such a share in the mistakes that each alone
    would make as many.
    """
    names = sorted({key for run in free for key in run if key[0] in sources})
    if not names:
        return {}
    most = np.array([[run[key].max() if key in run else 0.0 for key in names] for run in free])
    each = np.maximum(np.sort(most, axis=0)[-1 - WRONG_RUNS], 1e-3)
    together = float(np.sort((most / each).max(axis=1))[-1 - WRONG_RUNS])
    return {key: float(one) * together for key, one in zip(names, each, strict=True)}


def visibility(
    pair: Pair,
    span: Span,
    looks: Sequence[Look],
    counters: Mapping[tuple[str, str], float],
    in_profiles: Mapping[tuple[str, str], float],
) -> Visibility:
    """What the runs of a pair say together over `span`, given the thresholds of counters and of profiles."""
    beyond = [_beyond(look, span, counters) for look in looks]
    alone = {key: sum(one[key].min() > 0 for one in beyond if key in one) for key in counters}
    least = [_least(one) for one in beyond]
    return Visibility(
        pair.shape,
        pair.fault,
        pair.workload,
        len(looks),
        sum(one > 0 for one in least),
        sum(_least(_beyond(look, span, in_profiles)) > 0 for look in looks),
        max(alone, key=lambda key: alone[key])[1] if any(alone.values()) else "",
        round(float(np.median(least)), 2),
    )


def _beyond(look: Look, span: Span, limits: Mapping[tuple[str, str], float]) -> Standing:
    """By what is looked at, how far each faulty component is beyond the threshold, as a share of it."""
    seen = look.standings[span]
    return {key: seen[key][look.faulty] / limit - 1.0 for key, limit in limits.items() if key in seen}


def _least(beyond: Standing) -> float:
    """How far the least visible one is, where it is farthest."""
    return float(np.max(list(beyond.values()), axis=0).min()) if beyond else -1.0


def judged(pairs: Sequence[Pair], *, profiled: bool) -> list[Visibility]:
    """The oracle's verdicts on pairs of one shape and workload, one of them fault-free."""
    runs = {pair: pair.scenarios(ORACLE, FREE_RUNS if pair.fault == "none" else FAULT_RUNS) for pair in pairs}
    spans = sorted({_span(own[0]) for pair, own in runs.items() if pair.fault != "none"})
    seen: dict[Scenario, Look] = {}
    for batch in batches([scenario for own in runs.values() for scenario in own]):
        seen |= zip(batch, looked_at(batch, spans, profiled=profiled), strict=True)
    free = next(own for pair, own in runs.items() if pair.fault == "none")
    least = {
        (span, sources): thresholds([seen[scenario].standings[span] for scenario in free], sources)
        for span in spans
        for sources in ((DISK,), (DISK, NETWORK), (PROFILE,))
    }
    found = []
    for pair, own in runs.items():
        if pair.fault == "none":
            continue
        # Other servers' traffic does not say which LUN is at fault.
        sources = (DISK, NETWORK) if FAULTS[pair.fault].level == "server" else (DISK,)
        span = _span(own[0])
        looks = [seen[scenario] for scenario in own]
        found.append(visibility(pair, span, looks, least[span, sources], least[span, (PROFILE,)]))
    return found


def _span(scenario: Scenario) -> Span:
    return round(scenario.start), round(scenario.end)


def known() -> dict[Pair, Visibility]:
    """What the committed verdicts of the oracle say. Raises OSError without them."""
    rows = (Visibility(**row) for row in json.loads(VISIBLE.read_text()))
    return {row.pair: row for row in rows}


def earlier() -> set[Pair]:
    """The pairs that a rougher rule called visible (README.md). Raises OSError without its verdicts."""
    invisible = {Pair(*row) for row in json.loads(EARLIER.read_text())}
    return {pair for pair in PAIRS if pair.fault != "none"} - invisible


def main() -> None:
    """Asks the oracle about every pair, and writes down what it says."""
    argparse.ArgumentParser(
        prog="python -m bench.accuracy.simulation.oracle", description=__doc__
    ).parse_args()
    found: dict[Pair, Visibility] = {}
    for shape, workload in dict.fromkeys((pair.shape, pair.workload) for pair in PAIRS):
        own = {pair for pair in PAIRS if (pair.shape, pair.workload) == (shape, workload)}
        free = Pair(shape, "none", workload)
        found |= {row.pair: row for row in judged(sorted(own, key=PAIRS.index), profiled=False)}
        unseen = [pair for pair in own - {free} if not found[pair].in_counters]
        if unseen:
            found |= {row.pair: row for row in judged([free, *unseen], profiled=True)}
        print(f"{shape}, {workload}: {len(unseen)} of {len(own) - 1} pairs not visible", flush=True)
    rows = [json.dumps(asdict(found[pair])) for pair in PAIRS if pair.fault != "none"]
    VISIBLE.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
