"""Settings of all tests: Hypothesis, the limit of one test, and the check that no child process is left."""

import os

from hypothesis import HealthCheck, settings

from tests.support import wait

pytest_plugins = ("tests.support.no_process_left", "tests.support.leave_out_passed")

settings.register_profile("laggard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("laggard")
os.environ.setdefault("PYTEST_TIMEOUT", str(wait.TEST_LIMIT_SECONDS))
