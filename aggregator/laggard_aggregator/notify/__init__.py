"""E-mail about stragglers that persist: what is told when, how it reads, and how it gets out."""
