"""ELF images made by hand: little more than segments and symbols, of either class and byte order."""

import lzma
import struct
from collections.abc import Sequence
from dataclasses import dataclass

BASE = 0x400000
TEXT_AT = 0x1000  # offset in the file of what is loaded at BASE + TEXT_AT
TEXT_BYTES = 0x3000


@dataclass(frozen=True, slots=True)
class Sym:
    """A symbol; a function that others may use unless said otherwise."""

    name: str
    address: int
    size: int = 16
    binding: int = 1
    type: int = 2
    section: int = 1


def elf_image(
    symbols: Sequence[Sym],
    *,
    dynamic: Sequence[Sym] = (),
    hidden: bytes | None = None,
    wide: bool = True,
    order: str = "<",
) -> bytes:
    """An image whose `.symtab` has `symbols`; with `hidden` (an image), `.gnu_debugdata` has it packed."""
    header_bytes, segment_bytes, section_bytes = (64, 56, 64) if wide else (52, 32, 40)
    body = b""
    sections = [(0, 0, 0, 0, 0)]  # name, type, offset, size, link
    titles = b"\0"

    def put(title: str, kind: int, data: bytes, link: int = 0) -> int:
        nonlocal body, titles
        sections.append((len(titles), kind, header_bytes + segment_bytes + len(body), len(data), link))
        titles += title.encode() + b"\0"
        body += data
        return len(sections) - 1

    for title, kind, table in ((".symtab", 2, symbols), (".dynsym", 11, dynamic)):
        if table:
            names = b"\0"
            rows = b""
            for sym in table:
                rows += _symbol(len(names), sym, wide, order)
                names += sym.name.encode() + b"\0"
            put(title, kind, rows, put(title + "str", 3, names))
    if hidden is not None:
        put(".gnu_debugdata", 1, lzma.compress(hidden))
    put(".shstrtab", 3, titles + b".shstrtab\0")
    ident = b"\x7fELF" + bytes((2 if wide else 1, 1 if order == "<" else 2, 1)) + bytes(9)
    at = header_bytes + segment_bytes + len(body)
    header = struct.pack(
        order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"),
        *(3, 62, 1, 0, header_bytes, at, 0, header_bytes, segment_bytes, 1, section_bytes),
        *(len(sections), len(sections) - 1),
    )
    place = (TEXT_AT, BASE + TEXT_AT, BASE + TEXT_AT, TEXT_BYTES, TEXT_BYTES)
    segment = (
        struct.pack(order + "IIQQQQQQ", 1, 5, *place, 4096)
        if wide
        else struct.pack(order + "IIIIIIII", 1, *place, 5, 4096)
    )
    table_of_sections = b"".join(
        struct.pack(
            order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII"), name, kind, 0, 0, at, size, link, 0, 1, 0
        )
        for name, kind, at, size, link in sections
    )
    return ident + header + segment + body + table_of_sections


def _symbol(name: int, sym: Sym, wide: bool, order: str) -> bytes:
    info = sym.binding << 4 | sym.type
    if wide:
        return struct.pack(order + "IBBHQQ", name, info, 0, sym.section, sym.address, sym.size)
    return struct.pack(order + "IIIBBH", name, sym.address, sym.size, info, 0, sym.section)
