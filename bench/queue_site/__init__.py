"""A site as a closed queueing network whose truth is counterfactual, through the product's own path."""
