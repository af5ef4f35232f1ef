"""The demonstration: a recorded run replayed into real agents, a real broker and a real aggregator."""
