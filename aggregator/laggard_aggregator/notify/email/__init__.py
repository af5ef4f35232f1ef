"""Mail as a notification channel."""
