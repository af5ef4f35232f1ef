"""Formats that both the agent and the aggregator read, such as I/O traces: one parser each."""
