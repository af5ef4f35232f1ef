"""Webhook as a notification channel: JSON by HTTP POST."""

NAME = "webhook"
