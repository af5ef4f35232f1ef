"""Where this node's CPUs spend their time, by function: sampled instruction pointers."""
