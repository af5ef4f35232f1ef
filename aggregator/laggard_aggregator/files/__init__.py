"""Output files that are replaced atomically."""
