"""The spread of one component's course, and of a group."""

import numpy as np
import pytest

from laggard_aggregator.detect.laggard.evidence import LENGTHS, SCALE_WINDOWS
from laggard_aggregator.detect.laggard.spread import batch_variance, pooled_spread, standard_error


def test_the_error_of_a_mean_is_told_by_the_ticks_that_a_member_has() -> None:
    """Bursts leave whole quarters of a window empty; a step from window to window is no noise."""
    rng = np.random.default_rng(1)
    course = rng.normal(0.0, 0.1, (40, 12))
    gaps = np.full((40, 30), np.nan)
    gaps[:, 3:15] = course
    assert batch_variance(gaps) == pytest.approx(batch_variance(course))
    assert np.sqrt(batch_variance(gaps).mean()) == pytest.approx(0.1 / np.sqrt(12.0), rel=0.2)


def test_fewer_than_four_ticks_tell_no_error() -> None:
    few = np.full((1, 30), np.nan)
    few[0, 4:7] = 0.1, 0.2, 0.3
    assert np.isnan(batch_variance(few)).all()


@pytest.mark.parametrize("windows", [4, 8, 32])
def test_members_that_differ_for_good_are_that_far_apart_from_the_first_windows_on(windows: int) -> None:
    """Unlike others their averages do not shrink as `standard_error` does."""
    rng = np.random.default_rng(2)
    members, spread = 768, 0.1
    lasting = rng.normal(0.0, spread, members)
    lengths = np.minimum(np.arange(1.0, windows + 1.0)[:, None], SCALE_WINDOWS)
    growth = standard_error(lengths)
    squares = lasting[None, :] ** 2 / growth[-1, :, None] ** 2
    moment = (lasting[None, None, :] ** 2 / growth[:, :, None] ** 2).mean(axis=0)
    seen, counted = np.full(members, float(windows)), np.ones(members, dtype=np.bool_)
    unit, _ = pooled_spread(moment, seen, counted, 0.03, squares)
    assert unit * growth[-1] == pytest.approx(np.full(LENGTHS, spread), rel=0.1)
