"""Ingest of MQTT messages: reader, queue, admission, decoding, deduplication, nodes."""
