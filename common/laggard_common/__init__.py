"""Code shared by agent and aggregator: wire format, segment log, configuration, daemon parts. No numpy."""

__version__ = "0.2.0"  # pyproject.toml reads it here; asking importlib.metadata would cost an agent 1 MiB
