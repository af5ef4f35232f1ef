"""GlusterFS: io-stats counters of bricks and clients."""
