"""Runs judged by earlier ones: slow, as usual, different work, too few."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.jobs.verdict.analysis.dbscan import dbscan
from laggard_aggregator.jobs.verdict.analysis.phase_model import PhaseModel
from laggard_aggregator.jobs.verdict.analysis.run_history import RunPhases, judge, judged
from tests import naive_phases
from tests.support.thorough import examples

GB = 1e9


def run_of(
    factor: float = 1.0, scale: float = 1.0, name: str = "r", phases: int = 3, seed: int = 1
) -> RunPhases:
    """A run of `phases` checkpoints of 100 GB at 1 GB/s, with 10 % noise."""
    noise = np.exp(0.1 * np.random.default_rng(seed).standard_normal(phases))
    return RunPhases(
        name,
        "solver",
        64,
        {
            (str(i), "write"): (100 * scale * factor * float(noise[i]), 100 * GB * scale)
            for i in range(phases)
        },
    )


HISTORY = [run_of(seed=seed) for seed in range(10, 20)]


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (run_of(), "as usual"),
        (run_of(0.5), "as usual"),
        (run_of(1.6), "slow"),
        (run_of(2.5), "slow"),
        (run_of(1.0, 2.2), "as usual"),
        (run_of(1.0, 0.4), "as usual"),
        (run_of(1.0, 20.0), "different work"),
        (run_of(1.0, 0.01), "different work"),
        (run_of(1.0, phases=9), "different work"),
    ],
)
def test_verdicts(run: RunPhases, verdict: str) -> None:
    assert judge(run, HISTORY).verdict == verdict


def test_the_baseline_confuses_more_data_with_slow() -> None:
    found = judge(run_of(1.0, 2.2), HISTORY)
    assert (found.verdict, found.dbscan) == ("as usual", "outlier")


def test_factor_is_of_the_expected_duration() -> None:
    assert judge(run_of(3.0, 1.5), HISTORY).factor == pytest.approx(3.0, rel=0.15)


def test_a_single_long_phase_makes_a_run_slow() -> None:
    run = run_of(phases=6)
    phases = dict(run.phases)
    seconds, volume = phases["4", "write"]
    phases["4", "write"] = seconds * 3, volume
    history = [run_of(phases=6, seed=seed) for seed in range(10, 20)]
    assert judge(run, history).verdict == "as usual"
    assert judge(RunPhases("r", "solver", 64, phases), history).verdict == "slow"


def test_slow_runs_in_the_history_hide_no_slow_run() -> None:
    history = [run_of(3.0, seed=4), run_of(2.0, seed=5), *HISTORY[:8]]
    assert judge(run_of(2.0), history).verdict == "slow"
    assert judge(run_of(), history).verdict == "as usual"


def test_fewer_than_five_runs_are_too_few() -> None:
    names = [f"r{i}" for i in range(7)]
    runs = [run_of(name=name, seed=i) for i, name in enumerate(names)]
    others = [RunPhases("o", "solver", 128, run_of().phases), RunPhases("p", "other", 64, run_of().phases)]
    found = list(judged([*runs[:6], *others, runs[6]]))
    assert [v.verdict for v in found] == ["too few runs"] * 5 + ["as usual"] + ["too few runs"] * 2 + [
        "as usual"
    ]
    assert found[0].factor is None
    assert found[0].dbscan == "too few runs"


def test_a_slope_is_learned_from_volumes_that_differ() -> None:
    rng = np.random.default_rng(9)
    volumes = rng.uniform(0, 4, 60)
    noise = 0.05 * rng.standard_normal(60)
    learned = PhaseModel.fitted(0.7 * volumes + noise, volumes)
    assert learned.slope == pytest.approx(0.7, abs=0.05)
    short = PhaseModel.fitted(volumes[:1], volumes[:1])
    assert (short.slope, short.expected(volumes[0] + 1)) == pytest.approx((1.0, volumes[0] + 1))


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=40),
    st.floats(0.5, 4),
    st.integers(1, 6),
)
def test_dbscan_is_its_twin(points: list[tuple[int, int]], epsilon: float, least: int) -> None:
    values = [(float(x), float(y)) for x, y in points]
    assert dbscan(np.array(values), epsilon, least).tolist() == naive_phases.dbscan(values, epsilon, least)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.floats(1e-9, 1e29), st.floats(1, 1e29)), min_size=6, max_size=12))
def test_any_numbers_get_a_verdict(rows: list[tuple[float, float]]) -> None:
    runs = [RunPhases(str(i), "a", 1, {("p", "write"): row}) for i, row in enumerate(rows)]
    for verdict in judged(runs):
        assert verdict.factor is None or verdict.factor > 0
        assert verdict.score is None or np.isfinite(verdict.score)
