"""The timeline of ticks, the samplers, and batches made of their samples."""
