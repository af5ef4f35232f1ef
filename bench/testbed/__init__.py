"""Real slow disks on one machine: loop-device LUNs with kernel counters, faults, and recordings of them."""
