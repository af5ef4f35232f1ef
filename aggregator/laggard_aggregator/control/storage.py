"""Overrides on disk, written atomically with a digest, and the audit log. Synchronous."""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from laggard_aggregator.alarms.overrides import Overrides
from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.log.journal import is_damage, state_errors
from laggard_common.errors import InputError, StateError
from laggard_common.segment_log import sync_path

_log = logging.getLogger(__name__)

FILE = "decisions.json"
BEFORE_FILE = "decisions.json.before"
"""The decisions before the last change."""
DAMAGED_FILE = "decisions.json.damaged"
AUDIT_FILE = "audit.jsonl"
MOST_BYTES = 16 * 1024 * 1024


def recover(directory: Path) -> tuple[Overrides, bool]:
    """The overrides in `directory`, and whether they were damaged.

    A damaged file is moved to DAMAGED_FILE, and those before the last change are used, both with a WARNING.
    Raises StateError when it cannot be read or moved for another reason.
    """
    try:
        return load(directory), False
    except StateError as exc:
        if isinstance(exc.__cause__, OSError) and not is_damage(exc):
            raise
        _log.warning("%s; moved to %s", exc, DAMAGED_FILE)
    with state_errors(directory / FILE):
        (directory / FILE).rename(directory / DAMAGED_FILE)
    try:
        overrides = load(directory, BEFORE_FILE)
        _log.warning("using the %d decisions from before the last change", len(overrides.standing))
    except StateError as exc:
        _log.warning("%s: all silences, drains and comments are lost", exc)
        overrides = Overrides()
    with suppress(StateError):
        save(directory, overrides.state())  # for the next start
    return overrides, True


def load(directory: Path, name: str = FILE) -> Overrides:
    """Loads the overrides in `directory`. Raises StateError when the file is unusable."""
    book, path = Overrides(), directory / name
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"longer than {MOST_BYTES} bytes")
        state = json.loads(data)
        if isinstance(state, dict) and state.pop("digest", None) not in (None, _digest(state)):
            raise ValueError("its digest is of another content")
        book.restore(state)
    except FileNotFoundError:
        return book
    except OSError as exc:
        raise StateError(str(path), exc.strerror or str(exc)) from exc
    except ValueError as exc:
        raise StateError(str(path), f"holds no decisions: {exc}") from exc
    return book


def save(directory: Path, state: Mapping[str, Any]) -> None:
    """Saves the `state()` of overrides; the earlier ones stay as BEFORE_FILE. Raises StateError."""
    path, link = directory / FILE, directory / f".{BEFORE_FILE}.tmp"
    try:
        with suppress(OSError):
            link.unlink(missing_ok=True)
            link.hardlink_to(path)
            link.replace(directory / BEFORE_FILE)
        with written(path) as file:
            json.dump({**state, "digest": _digest(state)}, file, indent=1)
            file.write("\n")
        with state_errors(directory):
            sync_path(directory)  # the rename too
    except InputError as exc:
        raise StateError(exc.path, exc.reason) from exc


def _digest(state: Mapping[str, Any]) -> str:
    """Digest of decisions as plain data. An edited file needs none: remove it."""
    text = json.dumps(state, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def note(directory: Path, entry: dict[str, Any]) -> None:
    """Appends and fsyncs a line of the audit log. Raises StateError."""
    path = directory / AUDIT_FILE
    is_new = not path.exists()
    with state_errors(path):
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_path(directory)
