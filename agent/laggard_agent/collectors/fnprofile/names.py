"""Names of functions outside this node: `program/image/function`."""

import zlib
from functools import lru_cache

OTHER = "other"
OTHERS = "[others]/other"
_MOST_PART_CHARS = 64
_MOST_FUNCTION_CHARS = 126  # with two parts before it: MAX_NAME_CHARS


@lru_cache(1 << 12)
def function_id(program: str, image: str, function: str) -> str:
    """The three joined, without a `/` in any of them; too long a part ends in a checksum."""
    parts = (_part(program, _MOST_PART_CHARS), _part(image, _MOST_PART_CHARS))
    return "/".join((*parts, _part(function, _MOST_FUNCTION_CHARS)))


def other_of(function: str) -> str:
    """The row in which functions of the same program are counted that have none of their own."""
    return f"{function.partition('/')[0]}/{OTHER}"


def _part(name: str, most_chars: int) -> str:
    name = name.replace("/", ":")
    if not name.isprintable():
        name = "".join(c if c.isprintable() else "?" for c in name)
    if len(name) > most_chars:
        checksum = zlib.crc32(name.encode("utf-8", "surrogateescape"))
        name = f"{name[: most_chars - 9]}~{checksum:08x}"
    return name or "?"
