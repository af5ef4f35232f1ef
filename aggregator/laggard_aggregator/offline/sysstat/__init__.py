"""sysstat's disk statistics, in each form in which it writes or prints them."""
