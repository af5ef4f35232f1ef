"""Analysis of a job's I/O: pure computation on arrays, without clock, files or daemon."""
