"""Coverage-guided fuzzing of everything that reads bytes from elsewhere, for a bounded time."""
