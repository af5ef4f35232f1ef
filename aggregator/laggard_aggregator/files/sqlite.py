"""Errors of damaged files of SQLite."""

import sqlite3
from typing import Final

FAILURES: Final = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""What a statement raises that cannot be run.

SQLite calls some damaged schemas "out of memory", and quotes others, whose bytes are no text.
"""


def is_damage(exc: BaseException | None) -> bool:
    """Whether one of FAILURES says that the file is damaged, rather than busy, full or not permitted."""
    if isinstance(exc, sqlite3.Error):
        code = getattr(exc, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(exc, FAILURES)
