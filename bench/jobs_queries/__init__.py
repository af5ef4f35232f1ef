"""A generated site with a year of jobs, and questions about it."""
