"""Text from files and the network as a terminal may show it."""


def visible(text: str) -> str:
    r"""The text with each unprintable character escaped, such as `\x1b`: nothing of it acts on a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
