"""Evidence from the archive for causes of slowness."""
