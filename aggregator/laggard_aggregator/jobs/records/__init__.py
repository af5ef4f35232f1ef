"""Records of schedulers, settled and stored: jobs, their nodes and times."""
