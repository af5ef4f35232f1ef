"""GlusterFS: what io-stats counts in bricks and clients."""
