"""The agent: samples counters on a node, compresses, spools and publishes them. No numpy."""
