"""A real GlusterFS cluster in network namespaces, watched by real agents, with real faults in it."""
