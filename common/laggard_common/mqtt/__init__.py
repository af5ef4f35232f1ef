"""MQTT settings shared by both daemons, and the agent's thin client over aiomqtt."""
