"""LWFS: counters that TaihuLight's forwarding server writes to its log."""
