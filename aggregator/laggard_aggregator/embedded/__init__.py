"""The embedded MQTT broker of the demo and of a first small site: amqtt with access rules."""
