"""CPU, memory and load of the node, and the agent's own use."""
