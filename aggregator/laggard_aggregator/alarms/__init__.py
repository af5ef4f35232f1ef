"""From verdicts to stragglers to alarms."""
