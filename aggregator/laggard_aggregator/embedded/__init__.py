"""The embedded MQTT broker of the demo and of a first small site: amqtt behind a connection guard."""
