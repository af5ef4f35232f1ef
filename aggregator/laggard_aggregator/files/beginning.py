"""The beginning of a file, for messages about one of another format than was expected."""

_SHOWN_CHARS = 40


def beginning(first: bytes) -> str:
    """Says how a file with these first bytes begins."""
    text = first.lstrip()[: 4 * _SHOWN_CHARS].decode(errors="replace")
    line = " ".join(text.partition("\n")[0].split())
    if not line:
        return "it is empty"
    if not line.isprintable() or "\N{REPLACEMENT CHARACTER}" in line[:_SHOWN_CHARS]:
        return "it is binary"
    return f"it begins with {line if len(line) <= _SHOWN_CHARS else f'{line[:_SHOWN_CHARS]}...'!r}"
