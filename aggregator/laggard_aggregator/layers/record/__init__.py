"""`laggard layers record`: system calls, block queue and device of some processes, by tracefs instances."""
