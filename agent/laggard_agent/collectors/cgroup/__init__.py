"""Slurm's jobs on this node and their I/O, CPU time and memory, from control groups."""
