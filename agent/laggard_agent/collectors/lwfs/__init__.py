"""LWFS: what the forwarding server of TaihuLight counts, as it logs it."""
