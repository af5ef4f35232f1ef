"""The aggregator's own MQTT 3.1.1 reader."""
