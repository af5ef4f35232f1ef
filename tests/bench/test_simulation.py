"""What must hold of the simulation, whatever it simulates: it is what the detectors are scored on."""

import heapq
from dataclasses import replace

import numpy as np
import pytest

from bench.accuracy.simulation.closed_loop import run
from bench.accuracy.simulation.counters import DISK_FIELDS, NET_FIELDS
from bench.accuracy.simulation.faults import CASES, FAULTS
from bench.accuracy.simulation.functions import profiles
from bench.accuracy.simulation.oracle import (
    DISK,
    NETWORK,
    Standing,
    earlier,
    known,
    looked_at,
    standings,
    thresholds,
)
from bench.accuracy.simulation.plan import (
    ALL_CASES,
    FREE,
    ORACLE,
    PAIRS,
    REPORTING,
    RUNS_A_PAIR,
    TRAINING,
    TUNING,
    controls,
)
from bench.accuracy.simulation.scenario import Scenario, quiet
from bench.accuracy.simulation.shapes import SHAPES
from bench.accuracy.simulation.simulate import conditions_of, simulate
from bench.accuracy.simulation.workloads import WORKLOADS

D = DISK_FIELDS.index
WORKLOAD_NAMES = tuple(WORKLOADS)


def scenario(
    fault: str = "none", workload: str = "ddr", shape: str = "pvfs", seed: int = 7, samples: int = 60
) -> Scenario:
    return Scenario(SHAPES[shape], WORKLOADS[workload], fault, seed, samples, start=20.0, end=50.0)


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("workload", ["ddr", "iozonew", "hpc"])
def test_every_part_asked_for_is_done_or_still_in_flight(shape: str, workload: str) -> None:
    asked = (scenario(workload=workload, shape=shape, seed=seed) for seed in range(10))
    of = [one for one in asked if conditions_of(one).reset is None][:2]
    recording, work, _ = simulate(of)
    stripe = min(of[0].workload.stripe, of[0].shape.luns)
    issued, done = work.issued.sum(axis=(1, 2)), work.parts.sum(axis=(1, 2, 3))
    assert issued.tolist() == (work.asked * stripe).tolist()
    assert done.tolist() == issued.tolist()  # some of them after the end
    flying = recording.disk[:, -1, :, D("in_flight")]
    counted = recording.disk[:, -1, :, D("rd_ios")] + recording.disk[:, -1, :, D("wr_ios")]
    assert (counted + flying).tolist() == (work.issued.sum(axis=1) * of[0].workload.requests).tolist()
    finished = work.parts[:, :-1].sum(axis=(1, 3)) * of[0].workload.requests
    assert (counted >= finished).all()
    assert (counted - finished < of[0].workload.requests).all()  # of the one part in service
    clients = of[0].shape.luns
    assert (flying.sum(axis=1) <= clients * stripe * of[0].workload.requests).all()


@pytest.mark.parametrize("fault", ["none", "disk-hog", "send-pktloss", "write-network-hog"])
def test_counters_only_rise_and_a_disk_is_never_busier_than_time_passes(fault: str) -> None:
    recording, _, _ = simulate([scenario(fault, workload, seed=3) for workload in ("hpc",)])
    rises = np.diff(recording.disk, axis=1, prepend=0)
    rises[..., D("in_flight")] = 0
    assert (rises >= 0).all()
    assert (rises[..., D("io_ms")] <= 1001).all()  # truncation moves a millisecond across
    assert (recording.disk[..., D("in_flight")] >= 0).all()
    assert (np.diff(recording.net, axis=1, prepend=0) >= 0).all()
    assert recording.disk.shape[-1] == 17
    assert recording.net.shape[-1] == len(NET_FIELDS)


def test_a_reset_takes_a_servers_counters_back_and_nobody_elses() -> None:
    asked = [scenario(seed=seed) for seed in range(150)]
    resets = [one for one in asked if (conditions_of(one).reset or (0, 0))[0] > 10]
    assert resets
    recording, _, conditions = simulate(resets[:1])
    assert conditions[0].reset is not None
    at, server = conditions[0].reset
    falls = (np.diff(recording.disk[0, :, :, D("rd_ios")], axis=0) < 0).any(axis=0)
    assert np.flatnonzero(falls).tolist() == [server]
    read = recording.disk[0, :, server, D("rd_ios")]
    assert read[at] < read[at - 1]


def test_the_same_seed_is_the_same_run_in_any_company() -> None:
    alone, _, _ = simulate([scenario("lun-slow-2", seed=11)])
    others, _, _ = simulate([scenario("none", seed=5), scenario("lun-slow-2", seed=11), scenario(seed=6)])
    assert np.array_equal(alone.disk[0], others.disk[1])
    assert np.array_equal(alone.net[0], others.net[1])
    assert not np.array_equal(others.disk[0], others.disk[2])


def test_a_slow_lun_drags_the_throughput_of_all() -> None:
    healthy, slow = scenario(samples=120), scenario("lun-slow-4", samples=120)
    recording, _, _ = simulate([healthy, replace(slow, start=0.0, end=120.0)])
    read = recording.disk[:, -1, :, D("rd_sectors")].astype(np.float64)
    assert (read[1] < 0.5 * read[0]).all()
    assert np.ptp(read[1]) / read[1].mean() < 0.1  # all of them alike: throughput does not tell which


def test_an_unloaded_lun_waits_no_longer_than_its_service_takes() -> None:
    lonely = replace(scenario(samples=200), workload=replace(WORKLOADS["ddr"], think_ms=60_000.0))
    work = run([lonely], [quiet(lonely)])
    half_a_request = (lonely.workload.requests + 1) / (2 * lonely.workload.requests)
    expected = lonely.workload.service_seconds(read=True) * half_a_request
    assert work.waited.sum() / work.parts.sum() == pytest.approx(expected, rel=0.1)


def event_by_event(s: Scenario, slower: float) -> tuple[float, float]:
    """The same network in a heap of events: records a second, and how much longer the first LUN waits."""
    rng = np.random.default_rng(1)
    mean = np.full(s.shape.luns, s.workload.service_seconds(read=True))
    mean[0] *= slower
    think, k = s.workload.think_ms / 1000, s.workload.service_cv**-2
    due = [(float(rng.uniform(0, 2 * think)), client) for client in range(s.shape.luns)]
    heapq.heapify(due)
    free, waited, records = np.zeros(s.shape.luns), np.zeros(s.shape.luns), 0
    while due[0][0] < s.samples:
        now, client = heapq.heappop(due)
        service = rng.gamma(k, mean / k)
        begun = np.maximum(free, now)
        free = begun + service
        waited += begun - now + service * (s.workload.requests + 1) / (2 * s.workload.requests)
        records += 1
        think_k = s.workload.think_cv**-2
        heapq.heappush(due, (free.max() + rng.gamma(think_k, think / think_k), client))
    return records / s.samples, float(waited[0] / np.median(waited[1:]))


@pytest.mark.parametrize("slower", [1.0, 1.2])
def test_the_closed_loop_is_the_event_by_event_one(slower: float) -> None:
    fast_link = replace(SHAPES["pvfs"], link_bytes_per_s=1e15)
    of = [replace(scenario(seed=seed, samples=400), shape=fast_link) for seed in range(6)]
    conditions = [quiet(s) for s in of]
    for c in conditions:
        c.service[:, 0] *= slower
    work = run(of, conditions)
    waited = work.waited.sum(axis=(0, 1, 3))
    rate, ratio = event_by_event(replace(of[0], samples=2400), slower)
    assert work.asked.mean() / 400 == pytest.approx(rate, rel=0.02)
    assert waited[0] / np.median(waited[1:]) == pytest.approx(ratio, rel=0.15)


def test_profiles_name_the_rogue_and_count_what_the_paper_says() -> None:
    of = [scenario("disk-hog", seed=4), scenario("receive-pktloss", "ddw", seed=4)]
    for one in of:
        recording, work, conditions = simulate([one])
        profile = profiles(recording, work, conditions)
        server = one.shape.server_of[recording.faulty[0]][0]
        kind = profile.time if one.fault == "disk-hog" else profile.count
        during = kind[0, 25:48].sum(axis=0)
        distance = np.abs(during - np.median(during, axis=0)).sum(axis=1)
        assert distance.argmax() == server


def test_the_oracle_holds_components_against_their_healthy_peers() -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(0.0, 0.01, (10, 30)))
    faulty = np.arange(10) < 4
    values[faulty] *= 1.5
    values[4, 10:12] *= 9.0  # a spike
    values[5, 5:9] = np.nan
    values[6] = 0.0
    mean, median = standings(values, ~faulty)
    assert mean[:4] == pytest.approx(np.log(1.5), abs=0.02)
    assert median[:4] == pytest.approx(np.log(1.5), abs=0.02)
    assert mean[4] == pytest.approx(np.log(9.0) * 2 / 30, abs=0.02)
    assert median[4:] == pytest.approx(0.0, abs=0.02)
    assert (mean[6], median[6]) == (0.0, 0.0)


def test_the_oracle_blames_in_one_fault_free_run_of_a_hundred_whatever_the_metric() -> None:
    rng = np.random.default_rng(1)
    spreads = {(DISK, "await"): 0.9, (DISK, "svctm"): 0.3, (NETWORK, "retransmits"): 0.1}
    free: list[Standing] = [{n: rng.normal(0.0, s, 10) for n, s in spreads.items()} for _ in range(100)]
    least = thresholds(free, (DISK, NETWORK))
    assert sum(any((run[name] > least[name]).any() for name in spreads) for run in free) == 1
    assert least[DISK, "await"] > least[DISK, "svctm"] > least[NETWORK, "retransmits"]
    assert set(thresholds(free, (DISK,))) == {name for name in spreads if name[0] == DISK}


def test_the_oracle_sees_a_slow_lun_farther_out_than_any_other() -> None:
    of = [replace(scenario("lun-slow-1.5", seed=s, samples=180), start=60.0, end=180.0) for s in (3, 4)]
    for look in looked_at(of, [(60, 180)], profiled=False):
        seen = look.standings[60, 180][DISK, "svctm, mean of 60 s"]
        assert seen.argmax() == look.faulty.argmax()
        assert seen.max() == pytest.approx(np.log(1.5), abs=0.15)
        assert np.abs(seen[~look.faulty]).max() < 0.2


def test_what_the_oracle_calls_visible_is_seen_in_the_counters() -> None:
    visible = known()
    assert set(visible) == {pair for pair in PAIRS if pair.fault != "none"}
    assert earlier() < set(visible)
    of = [scenario("lun-slow-2", workload, seed=21, samples=300) for workload in ("ddr", "ddw")]
    for one in of:
        pair = next(p for p in visible if (p.fault, p.workload) == (one.fault, one.workload.name))
        assert visible[pair].in_counters
        recording, _, _ = simulate([replace(one, start=0.0, end=300.0)])
        disk = recording.disk[0, -1].astype(np.float64)
        awaits = (disk[:, D("rd_ms")] + disk[:, D("wr_ms")]) / (disk[:, D("rd_ios")] + disk[:, D("wr_ios")])
        faulty = recording.faulty[0]
        assert awaits[faulty].min() > 1.5 * awaits[~faulty].max()


def case(fault: str, workload: str = "ddw", interval: float = 1.0, samples: int = 120) -> Scenario:
    found = next(
        c for c in ALL_CASES if (c.fault, c.workload, c.interval_seconds) == (fault, workload, interval)
    )
    return replace(found.scenarios(TUNING, 1)[0], samples=samples, start=0.0, end=samples * interval)


def test_a_hog_keeps_its_requests_in_flight_and_they_are_counted() -> None:
    asked = case("hog-8")
    lun, requests = asked.seed % asked.shape.luns, asked.workload.requests
    recording, work, conditions = simulate([asked, replace(asked, fault="none")])
    disk = recording.disk[..., D("rd_ios")] + recording.disk[..., D("wr_ios")]
    assert disk[0, -1, lun] > 1.1 * disk[1, -1, lun]
    assert np.diff(recording.disk[0, :, lun, D("io_ms")]).min() >= 999
    clients = (work.asked[0] * min(asked.workload.stripe, asked.shape.luns) // asked.shape.luns) * requests
    assert work.issued[0, :, lun].sum() * requests > clients
    assert recording.disk[0, :, lun, D("in_flight")].min() >= 8
    assert recording.faulty[0].sum() == 1
    assert conditions[1].guests is None
    assert work.records[0] < work.records[1]


def test_a_hot_lun_gets_so_much_more_load_and_is_healthy() -> None:
    of = replace(case("hot-1.45"), workload=WORKLOADS["postmark"])
    asked = [replace(of, seed=seed) for seed in range(100_010, 100_020)]
    recording, _, _ = simulate(asked)
    assert not recording.faulty.any()
    done = (recording.disk[..., D("rd_ios")] + recording.disk[..., D("wr_ios")])[:, -1].astype(np.float64)
    ratios = [row[s.seed % 10] / np.median(row) for row, s in zip(done, asked, strict=True)]
    assert np.median(ratios) == pytest.approx(1.45, abs=0.15)


@pytest.mark.parametrize("fault", ["20-of-60-s", "third-interval"])
def test_what_is_slow_at_times_is_so_a_third_of_the_time(fault: str) -> None:
    asked = case(fault)
    slow, healthy = conditions_of(asked), conditions_of(replace(asked, fault="none"))
    factors = (slow.service / healthy.service)[:, asked.seed % asked.shape.luns]
    assert factors.mean() == pytest.approx(1.0 + 2.0 / 3.0, abs=0.03)
    assert factors.max() == pytest.approx(3.0)
    assert factors.min() == pytest.approx(1.0)


def test_no_seed_is_used_twice() -> None:
    for seeds in (TUNING, REPORTING, TRAINING, ORACLE):
        used = [s.seed for pair in PAIRS for s in pair.scenarios(seeds, RUNS_A_PAIR)]
        used += [s.seed for one in ALL_CASES for s in one.scenarios(seeds, RUNS_A_PAIR)]
        used += [s.seed for pair in FREE for s in controls(seeds, 2, pair)]
        assert len(used) == len(set(used))
        assert all(seed in seeds for seed in used)
    assert len({seeds.start for seeds in (TUNING, REPORTING, TRAINING, ORACLE)}) == 4
    assert {pair.fault for pair in PAIRS} == set(FAULTS)
    assert {one.fault for one in ALL_CASES} == set(CASES)
