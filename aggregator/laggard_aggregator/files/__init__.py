"""Output: files that are replaced atomically, lines of JSON."""
