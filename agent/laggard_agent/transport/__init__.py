"""Publishing to the broker: session, publisher, redelivery, backlog rate, back-off, heartbeat."""
