"""The demo: a recorded run replayed through real agents, a real broker and a real aggregator."""
