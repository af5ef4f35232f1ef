"""Jobs joined with counters: volumes, summaries, paths."""
