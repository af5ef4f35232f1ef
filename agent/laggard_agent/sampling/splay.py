"""When a node's batches end and go out, so that not all of a site do so at once."""

import zlib


def phase_ns(site: str, node: str, batch_ns: int) -> int:
    """This node's own moment inside the batch interval, so that nodes do not publish all at once."""
    return zlib.crc32(f"{site}/{node}".encode()) * batch_ns >> 32
