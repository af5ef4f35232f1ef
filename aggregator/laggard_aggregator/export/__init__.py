"""What the outside sees of the aggregator: Prometheus metrics, the JSON API."""
