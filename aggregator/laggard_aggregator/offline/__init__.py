"""What the user has at hand, read into peer groups: CSV, sysstat activity files, Laggard's own archive."""
