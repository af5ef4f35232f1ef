"""The aggregator's status as read by exposition, API, page and notifications."""
