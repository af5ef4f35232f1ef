"""From differences of counters to the metrics that peers are compared by. A file a source."""
