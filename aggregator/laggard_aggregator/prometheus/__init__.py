"""Prometheus servers: questions, maps of series, scraped counters as batches."""
