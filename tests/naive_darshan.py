"""Slow, obvious twins of what is taken from Darshan's logs."""

from collections.abc import Sequence


def osts_of_bytes(components: Sequence[tuple[int, int, list[int]]], highest: int) -> list[int]:
    """OSTs of the bytes 0 to `highest`, of components as begin, end (-1: none) and OSTs.

    None where a byte lies beyond all components.
    """
    osts: set[int] = set()
    for byte in range(highest + 1):
        of_byte = [own for begin, end, own in components if begin <= byte and (byte < end or end < 0)]
        if not of_byte:
            return []
        osts.update(ost for own in of_byte for ost in own if ost >= 0)
    return sorted(osts)
