"""Peer groups: membership, topology, name patterns."""
