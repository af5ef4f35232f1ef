"""The spread of one component's course."""

import numpy as np
import pytest

from laggard_aggregator.detect.laggard.spread import batch_variance


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
