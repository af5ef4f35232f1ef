"""Settings of all tests: Hypothesis, temporary files, limit of one test, no process left."""

import os

from hypothesis import HealthCheck, settings

from tests.support import thorough, wait
from tests.support.ram_disk import use_ram_disk

pytest_plugins = ("tests.support.no_process_left", "tests.support.leave_out_passed")

use_ram_disk(os.environ)
settings.register_profile(
    "laggard", deadline=None, max_examples=thorough.EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("laggard")
os.environ.setdefault("PYTEST_TIMEOUT", str(wait.TEST_LIMIT_SECONDS))
