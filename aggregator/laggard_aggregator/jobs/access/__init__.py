"""Access: the jobs that a principal may see, and questions about them."""
