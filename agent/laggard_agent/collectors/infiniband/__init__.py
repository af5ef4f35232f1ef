"""Port counters of RDMA devices."""
