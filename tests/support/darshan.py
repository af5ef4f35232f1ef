"""Skips tests where libdarshan-util cannot be used."""

import pytest

from laggard_aggregator.jobs.darshan.darshan_library import library
from laggard_common.errors import ServiceError


def skip_without_darshan() -> None:
    """Skips the test, or the module that is being imported, and says why.

    The `darshan` package has wheels for some Pythons and machines only; elsewhere it is installed without the
    library, and cannot be imported.
    """
    try:
        library()
    except ServiceError as exc:
        pytest.skip(str(exc), allow_module_level=True)
