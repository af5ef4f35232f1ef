"""From MQTT message to counter rings: subscriber, decoding, accounting, peer groups, metrics."""
