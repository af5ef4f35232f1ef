"""The scores are the papers': all faulty blamed, no healthy one blamed."""

import numpy as np
import pytest

from bench.accuracy.judging import Findings
from bench.accuracy.score import Outcome, episodes, outcome, rates, upper_rate, upper_share
from bench.accuracy.simulation.shapes import SHAPES, Shape

SHAPE = SHAPES["pvfs-2"]
window_ends = np.arange(60.0, 601.0, 30.0)


def findings(
    stragglers: dict[str, tuple[float, float]], shape: Shape = SHAPE, *, luns: bool = True
) -> Findings:
    """Each named component a straggler from one time to another."""
    components = shape.lun_names if luns else shape.server_names
    flags = np.zeros((len(window_ends), len(components)), dtype=np.bool_)
    for name, (begin, end) in stragglers.items():
        flags[(window_ends >= begin) & (window_ends <= end), components.index(name)] = True
    return Findings("diskstats" if luns else "net", components, window_ends, {"await": flags})


def faulty(*names: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([name in names for name in SHAPE.lun_names])


def test_all_faulty_ones_must_be_found_and_the_last_sets_the_delay() -> None:
    both = faulty("oss-01/sda", "oss-03/sdb")
    one = findings({"oss-01/sda": (180, 400)})
    scored = outcome([one], both, SHAPE, 120.0)
    assert (scored.found, scored.wrong, scored.missed) == (False, False, ("oss-03/sdb",))
    scored = outcome([one, findings({"oss-03/sdb": (270, 300)})], both, SHAPE, 120.0)
    assert (scored.found, scored.wrong, scored.delay_seconds) == (True, False, 150.0)


def test_a_server_stands_for_its_luns_but_not_for_its_neighbours() -> None:
    scored = outcome([findings({"oss-01": (180, 400)}, luns=False)], faulty("oss-01/sda"), SHAPE, 120.0)
    assert (scored.found, scored.wrong) == (True, False)
    scored = outcome([findings({"oss-02": (180, 400)}, luns=False)], faulty("oss-01/sda"), SHAPE, 120.0)
    assert (scored.found, scored.wrong) == (False, True)
    assert scored.blamed == ("oss-02 by await",)


def test_a_healthy_one_blamed_at_any_time_is_a_false_positive() -> None:
    scored = outcome([findings({"oss-05/sda": (60, 90)})], faulty("oss-01/sda"), SHAPE, 120.0)
    assert (scored.found, scored.wrong) == (False, True)


def test_what_was_blamed_before_the_fault_is_not_found_by_that() -> None:
    scored = outcome([findings({"oss-01/sda": (60, 120)})], faulty("oss-01/sda"), SHAPE, 120.0)
    assert not scored.found
    assert not scored.wrong


def test_rates_read_as_true_and_false_positives_in_percent() -> None:
    own = [Outcome(True, False, 90.0), Outcome(True, True, 150.0), Outcome(False, False, np.nan)]
    assert str(rates(own)) == "67 / 33, 120 s"


def test_upper_bounds_are_the_textbooks() -> None:
    assert upper_rate(0, 10_000) == pytest.approx(3.0 / 10_000, rel=0.01)  # the rule of three
    assert upper_share(0, 1_000) == pytest.approx(3.0 / 1_000, rel=0.01)
    assert upper_rate(3, 1.0) == pytest.approx(7.754, rel=1e-3)
    assert upper_share(5, 5) == 1.0


def test_an_episode_is_one_alarm() -> None:
    flags = np.array([[0, 1], [1, 1], [1, 0], [0, 1], [1, 1]], dtype=np.bool_)
    assert episodes(flags) == 4
