"""MQTT settings of both daemons, and the agent's client."""
