"""The page for people: slow components, their evidence and the next steps."""
