"""A read-only view of the running aggregator for metrics, API, page and notifications."""
