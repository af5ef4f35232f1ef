"""A Beacon site of known truth, made apart from the product and sent through its own path."""
