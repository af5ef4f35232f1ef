"""The deterministic machine: log entries in, judgements out; its checkpoint and recovery."""
