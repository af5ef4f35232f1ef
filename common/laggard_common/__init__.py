"""What agent and aggregator share: wire format, topics, schemas, segments, configuration. No numpy."""

from importlib.metadata import version

__version__ = version("laggard")
