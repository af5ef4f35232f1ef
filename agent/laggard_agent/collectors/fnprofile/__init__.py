"""CPU time of this node by function, from sampled instruction pointers."""
