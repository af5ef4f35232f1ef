"""Faults on purpose: what a site of real processes loses, counts twice or forgets under each of them."""
