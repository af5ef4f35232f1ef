"""The pages for people: what is slow, since when, by how much, and where to look next."""
