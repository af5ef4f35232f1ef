"""LNet's networks, peers and messages."""
