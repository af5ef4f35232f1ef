"""Function names of ELF images: the symbol tables of programs and shared libraries.

`.symtab` if present, otherwise `.dynsym` and the symbols of `.gnu_debugdata` (xz). Files are read, not
mapped: truncation of a mapped file would kill the reader (SIGBUS). They may be any user's and hostile, so
everything is bounded and checked, and no file stays open.
"""

import lzma
import os
import stat
import struct
import threading
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from laggard_common.errors import CollectError

MOST_FUNCTIONS = 1 << 18  # of one image; one with more counts as stripped
_MOST_SYMBOLS = 1 << 20  # of one table, functions or not; one with more is not read
_MOST_NAMES_BYTES = 16 << 20
_NAMES_BLOCK = 8 << 10
_MOST_KNOWN = 1 << 12  # cached names
_INDEX = 0xFFFF_FFFF
_MOST_NAME_BYTES = 512
_MOST_HEADERS = 1 << 12  # sections, or segments
_MOST_HIDDEN_BYTES = 16 << 20  # .gnu_debugdata, unpacked
_MOST_CACHED_BYTES = 8 << 20  # tables of all images together
_MOST_IMAGES = 512
_BLOCK_SYMBOLS = 1 << 14
_NESTED = 4  # functions that may start within another one before its end is missed

_IDENT_BYTES = 16
_PT_LOAD, _PT_NOTE = 1, 4
_BUILD_ID = 3  # type of a note
_MOST_NOTES_BYTES = 1 << 16
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_FUNCTIONS = frozenset((2, 10))  # STT_FUNC, STT_GNU_IFUNC
_RANKS = {1: 0, 2: 1}  # global, weak; others after them: rank of the symbols of one function
_UNDEFINED = 0
_HIDDEN = b".gnu_debugdata\0"

Read = Callable[[int, int], bytes]  # (offset, size): at most that many bytes, fewer at the end of the image


@dataclass(frozen=True, slots=True)
class _Layout:
    """Structures of one ELF class and byte order, and the fields used (man 5 elf)."""

    header: struct.Struct  # from e_type on
    segment: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    note: struct.Struct
    of_segment: "itemgetter[tuple[int, int, int, int]]"  # type, offset, address, size in the file
    of_symbol: "itemgetter[tuple[int, int, int, int, int]]"  # name, info, section, address, size

    def build_id_in(self, notes: bytes) -> bytes:
        """The build ID among the notes of a segment, empty without one."""
        at = 0
        while at + self.note.size <= len(notes):
            name_bytes, size, kind = self.note.unpack_from(notes, at)
            name_at = at + self.note.size
            begins = name_at + (name_bytes + 3) // 4 * 4
            if kind == _BUILD_ID and notes[name_at : name_at + name_bytes] == b"GNU\0":
                return notes[begins : begins + size]
            at = begins + (size + 3) // 4 * 4
        return b""


def _layout(wide: bool, order: str) -> _Layout:
    if wide:
        words, orders = ("HHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "IBBHQQ"), ((0, 2, 3, 5), (0, 1, 3, 4, 5))
    else:
        words, orders = ("HHIIIIIHHHHHH", "IIIIIIII", "IIIIIIIIII", "IIIBBH"), ((0, 1, 2, 4), (0, 3, 5, 1, 2))
    header, segment, section, symbol, note = (struct.Struct(order + word) for word in (*words, "III"))
    return _Layout(header, segment, section, symbol, note, itemgetter(*orders[0]), itemgetter(*orders[1]))


_LAYOUTS = {(c, o): _layout(c == 2, "<" if o == 1 else ">") for c in (1, 2) for o in (1, 2)}


@dataclass(frozen=True, slots=True)
class Symbols:
    """Functions of an image by link-time address: `starts` ascend without duplicates.

    A size of 0 means up to the next function. `segments`: offset in the file, address and size of each loaded
    part. `names_at[i]` is the start of the name of function i in `names`, blocks of _NAMES_BLOCK bytes, each
    compressed by zlib: few names are needed, and C++ names are long.
    """

    segments: tuple[tuple[int, int, int], ...]
    starts: "array[int]"
    sizes: "array[int]"
    names_at: "array[int]"
    names: tuple[bytes, ...]
    known: dict[int, str] = field(default_factory=dict, compare=False)

    def lookup(self, offset: int) -> str | None:
        """The function at `offset` of the file; None where no symbol covers it."""
        for at, address, size in self.segments:
            if at <= offset < at + size:
                return self.lookup_address(offset - at + address)
        return None

    def lookup_address(self, address: int) -> str | None:
        """The function at a link-time address; for relocatable images relative to the load address."""
        last = bisect_right(self.starts, address) - 1
        for i in range(last, max(last - _NESTED, -1), -1):
            if address < self.starts[i] + self.sizes[i] or (i == last and not self.sizes[i]):
                return self.known.get(i) or self._name(i)
        return None

    def _name(self, i: int) -> str:
        block, start = divmod(self.names_at[i], _NAMES_BLOCK)
        text = b"".join(map(zlib.decompress, self.names[block : block + 2]))
        name = text[start : start + _MOST_NAME_BYTES].partition(b"\0")[0].decode("utf-8", "replace")
        if len(self.known) >= _MOST_KNOWN:
            self.known.clear()
        self.known[i] = name
        return name


class SymbolColumns:
    """Functions in the order found, as columns: a tuple each would take ten times the memory.

    `names`: bytes that the functions' names point into; a name ends at its NUL.
    """

    def __init__(self) -> None:
        self.names = bytearray()
        self._places: list[int] = []  # address and index
        self._sizes = array("I")
        self._names_at = array("I")
        self._ranks = bytearray()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, address: int, size: int, name_at: int, rank: int) -> None:
        """Adds a function; of several at one address the lowest rank gives the name."""
        self._places.append(address << 32 | len(self._sizes))
        self._sizes.append(min(size, _INDEX))
        self._names_at.append(name_at)
        self._ranks.append(rank)

    def symbols(self, segments: tuple[tuple[int, int, int], ...] = ()) -> Symbols:
        """The resulting table, one function per address; this object is unusable afterwards.

        Preference: with a size, lowest rank, fewest leading underscores, first by name.
        """
        starts, sizes, names_at = array("Q"), array("I"), array("I")
        self._places.sort()
        before, best = -1, 0
        for place in self._places:
            i = place & _INDEX
            if place >> 32 == before:
                if self._order(i) < self._order(best):
                    best, sizes[-1], names_at[-1] = i, self._sizes[i], self._names_at[i]
                continue
            before, best = place >> 32, i
            starts.append(before)
            sizes.append(self._sizes[i])
            names_at.append(self._names_at[i])
        blocks = range(0, len(self.names), _NAMES_BLOCK)
        names = tuple(zlib.compress(self.names[at : at + _NAMES_BLOCK], 1) for at in blocks)
        return Symbols(segments, starts, sizes, names_at, names)

    def _order(self, i: int) -> tuple[bool, int, int, bytes]:
        name = self._name(i)
        return self._sizes[i] == 0, self._ranks[i], len(name) - len(name.lstrip(b"_")), name

    def _name(self, i: int) -> bytes:
        start = self._names_at[i]
        end = self.names.find(0, start, start + _MOST_NAME_BYTES)
        return bytes(self.names[start : end if end >= 0 else start + _MOST_NAME_BYTES])


_held: dict[tuple[int, ...], Symbols] = {}  # the most recently used image is last
_lock = threading.Lock()


def _cached(key: tuple[int, ...], read: Callable[[], Symbols]) -> Symbols:
    """The table of an image; the least recently used ones make room for a new one.

    Another thread does not wait while an image is read.
    """
    with _lock:
        symbols = _held.pop(key, None)
        if symbols is not None:
            _held[key] = symbols
            return symbols
    symbols = read()
    with _lock:
        _held[key] = symbols
        room = _MOST_CACHED_BYTES - sum(map(_size, _held.values()))
        while len(_held) > 1 and (room < 0 or len(_held) > _MOST_IMAGES):
            room += _size(_held.pop(next(iter(_held))))
    return symbols


def _size(symbols: Symbols) -> int:
    return sum(map(len, symbols.names)) + 16 * len(symbols.starts)


def symbols_of(path: str, inode: int | None = None) -> Symbols:
    """Functions of the ELF image at `path`: for a stripped one the exported ones, or none.

    Cached until the file changes or it is evicted. Raises CollectError for anything but a readable regular
    ELF file, and for another inode than `inode` if that is given.
    """
    try:
        looked = os.open(path, os.O_PATH | os.O_CLOEXEC)  # opening a device or FIFO may have side effects
        try:
            status = os.fstat(looked)
            if not stat.S_ISREG(status.st_mode):
                raise CollectError(path, "not a regular file")
            if inode not in (None, status.st_ino):
                raise CollectError(path, "another file by now")
            key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            return _cached(key, lambda: _read_from(looked, status.st_size, path))
        finally:
            os.close(looked)
    except OSError as exc:
        raise CollectError(path, exc.strerror or str(exc)) from exc


def _read_from(looked: int, size: int, path: str) -> Symbols:
    with Path(f"/proc/self/fd/{looked}").open("rb", buffering=0) as file:
        return _parsed(_reader_of(file.fileno(), size), path)


def build_id(path: str) -> bytes:
    """Build ID of an ELF image, empty without one. Raises OSError, and CollectError for another file."""
    with open(path, "rb", buffering=0, opener=lambda p, f: os.open(p, f | os.O_NONBLOCK)) as file:
        image = _opened(_reader_of(file.fileno(), os.fstat(file.fileno()).st_size), path)
        notes = (image.read(at, min(size, _MOST_NOTES_BYTES)) for at, size in image.notes)
        return next(filter(None, map(image.layout.build_id_in, notes)), b"")


def _reader_of(fd: int, size: int) -> Read:
    return lambda at, most: os.pread(fd, min(most, size - at), at) if at < size else b""


def parse(data: bytes, name: str = "ELF image") -> Symbols:
    """Parses the functions of an ELF image in memory. Raises CollectError with `name`."""
    return _parsed(_reader(data), name)


@dataclass(frozen=True, slots=True)
class _Image:
    read: Read
    layout: _Layout
    segments: tuple[tuple[int, int, int], ...]
    notes: Sequence[tuple[int, int]]
    sections: Sequence[Sequence[int]]  # name, type, flags, address, offset, size, link
    titles: int  # index of the section with the section names

    def first(self, kind: int) -> Sequence[int] | None:
        """The first section of this type."""
        return next((section for section in self.sections if section[1] == kind), None)


def _parsed(read: Read, path: str) -> Symbols:
    image = _opened(read, path)
    columns = SymbolColumns()
    _take(columns, image, image.first(_SHT_SYMTAB))
    if not columns:
        _take(columns, image, image.first(_SHT_DYNSYM))
        hidden = _hidden(image)
        if hidden is not None:
            _take(columns, hidden, hidden.first(_SHT_SYMTAB))
    return (columns if len(columns) <= MOST_FUNCTIONS else SymbolColumns()).symbols(image.segments)


def _opened(read: Read, path: str) -> _Image:
    ident = read(0, _IDENT_BYTES)
    layout = _LAYOUTS.get((ident[4], ident[5])) if len(ident) == _IDENT_BYTES else None
    if layout is None or ident[:4] != b"\x7fELF":
        raise CollectError(path, "not an ELF file")
    header = read(_IDENT_BYTES, layout.header.size)
    if len(header) < layout.header.size:
        raise CollectError(path, "a truncated ELF file")
    _, _, _, _, segments_at, sections_at, _, _, *sizes, titles = layout.header.unpack(header)
    entries = _entries(read, layout.segment, segments_at, sizes[0], sizes[1])
    mapped = [layout.of_segment(entry) for entry in entries]
    segments = tuple((offset, address, size) for kind, offset, address, size in mapped if kind == _PT_LOAD)
    notes = [(offset, size) for kind, offset, _, size in mapped if kind == _PT_NOTE]
    sections = [s[:7] for s in _entries(read, layout.section, sections_at, sizes[2], sizes[3])]
    return _Image(read, layout, segments, notes, sections, titles)


def _entries(read: Read, entry: struct.Struct, offset: int, size: int, count: int) -> Iterator[Sequence[int]]:
    """The complete entries of a table of headers; none for an impossible table."""
    if size == entry.size and count <= _MOST_HEADERS:
        data = read(offset, size * count)
        yield from entry.iter_unpack(data[: len(data) // size * size])


def _take(columns: SymbolColumns, image: _Image, table: Sequence[int] | None) -> None:
    """Adds the functions of a symbol table, and the names that they point into."""
    entry = image.layout.symbol
    if table is None or table[6] >= len(image.sections) or image.sections[table[6]][5] > _MOST_NAMES_BYTES:
        return
    if table[5] > _MOST_SYMBOLS * entry.size:  # a sparse file may really be that long
        return
    before = len(columns.names)
    columns.names += image.read(image.sections[table[6]][4], image.sections[table[6]][5]) + b"\0"
    names_bytes = len(columns.names) - before - 1
    block = _BLOCK_SYMBOLS * entry.size
    offset, end = table[4], table[4] + table[5]
    while offset < end and (data := image.read(offset, min(block, end - offset))):
        symbols = entry.iter_unpack(data[: len(data) // entry.size * entry.size])
        for name, info, section, address, size in map(image.layout.of_symbol, symbols):
            if info & 15 in _FUNCTIONS and section != _UNDEFINED and 0 < name < names_bytes:
                columns.add(address, size, before + name, _RANKS.get(info >> 4, 2))
        if len(columns) > MOST_FUNCTIONS:
            return
        offset += block


def _hidden(image: _Image) -> _Image | None:
    """The ELF image compressed in .gnu_debugdata, which holds little but symbols."""
    if image.titles >= len(image.sections):
        return None
    titles = image.sections[image.titles][4]
    packed = next((s for s in image.sections if image.read(titles + s[0], len(_HIDDEN)) == _HIDDEN), None)
    if packed is None or packed[5] > _MOST_HIDDEN_BYTES:
        return None
    try:
        unpack = lzma.LZMADecompressor(memlimit=2 * _MOST_HIDDEN_BYTES)
        return _opened(_reader(unpack.decompress(image.read(packed[4], packed[5]), _MOST_HIDDEN_BYTES)), "")
    except (lzma.LZMAError, CollectError):
        return None


def _reader(data: bytes) -> Read:
    return lambda offset, size: data[offset : offset + size]
