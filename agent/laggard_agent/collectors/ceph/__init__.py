"""Latencies of Ceph's OSDs on this node, from their admin sockets."""
