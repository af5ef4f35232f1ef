from pathlib import Path

import pytest

from laggard_aggregator.files.atomic_write import written
from laggard_common.errors import InputError


def test_a_path_that_cannot_be_looked_at_is_an_error_of_the_path(tmp_path: Path) -> None:
    """As an error of the system, it ended the aggregator in a poll of jobs."""
    with pytest.raises(InputError, match="File name too long"), written(tmp_path / ("x" * 300)):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []
