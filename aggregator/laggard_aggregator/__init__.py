"""The aggregator: compares peers window by window, raises alarms, keeps the archive."""
