"""What an outage leaves in spools, and how it comes in afterwards."""
