"""Where the documentation's pictures come from."""
