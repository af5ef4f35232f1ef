"""Settings of all tests. An example may take as long as it does: nothing here asserts time."""

from hypothesis import settings

settings.register_profile("laggard", deadline=None)
settings.load_profile("laggard")
