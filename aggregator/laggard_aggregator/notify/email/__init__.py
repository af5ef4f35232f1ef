"""Mail as a notification channel."""

NAME = "mail"
