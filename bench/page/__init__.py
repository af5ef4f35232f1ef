"""What the pages cost, and where their pictures come from."""
