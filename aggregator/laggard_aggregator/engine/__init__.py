"""The deterministic machine, the routing of batches to stores, checkpoint and recovery."""
