"""Layers of a gluster volume by its own counters: client translators, brick translators, disks."""
