"""Publishing to the broker: publisher, redelivery, backlog rate and back-off."""
