"""A whole site's agents on one machine: real batches, a real broker, one real aggregator."""
