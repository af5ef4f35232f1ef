"""Strangers against a whole site: real brokers, a real aggregator, honest nodes beside them."""
