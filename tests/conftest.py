"""Settings of all tests: Hypothesis, the limit of one test, and the check that no child process is left."""

import os

from hypothesis import HealthCheck, settings

from tests.support import wait
from tests.support.no_process_left import no_process_left, pytest_configure, pytest_sessionfinish

__all__ = ["no_process_left", "pytest_configure", "pytest_sessionfinish"]

settings.register_profile("laggard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("laggard")
os.environ.setdefault("PYTEST_TIMEOUT", str(wait.TEST_LIMIT_SECONDS))
