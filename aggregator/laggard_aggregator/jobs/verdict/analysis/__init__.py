"""Analysis of jobs: pure functions."""
