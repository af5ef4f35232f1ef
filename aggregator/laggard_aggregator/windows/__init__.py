"""Counter rings, derived interval metrics and the window schedule."""
