"""The report of a centre over a time: one HTML file that needs nothing else."""
