"""Readers of job metadata: Slurm, PBS, Flux and the neutral `jobs.jsonl`, each into one table of records."""
