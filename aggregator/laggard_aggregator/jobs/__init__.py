"""Jobs: who ran where and when, what each moved, and for whom that may be shown (Beacon, section 3.2)."""
