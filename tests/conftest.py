"""Settings of all tests. An example may take as long as it does: nothing here asserts time."""

from hypothesis import HealthCheck, settings

settings.register_profile("laggard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("laggard")
