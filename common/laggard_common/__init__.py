"""What agent and aggregator share: wire format, topics, schemas, segments, configuration. No numpy."""

__version__ = "0.1.0"  # pyproject.toml reads it here; asking importlib.metadata would cost an agent 1 MiB
