"""The built-in broker: amqtt behind a guarded door of our own."""
