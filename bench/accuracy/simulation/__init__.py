"""A closed-loop model of a striped file system whose counters are known to be true. ../README.md says how."""
