"""Overrides on disk, written atomically, and the audit log. Synchronous."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laggard_aggregator.alarms.overrides import Overrides
from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.log.journal import state_errors
from laggard_common.errors import InputError, StateError
from laggard_common.segment_log import sync_path

FILE = "decisions.json"
AUDIT_FILE = "audit.jsonl"
MOST_BYTES = 16 * 1024 * 1024


def load(directory: Path) -> Overrides:
    """Loads the overrides in `directory`.

    Raises StateError when the file is unusable: without them, silenced components would notify and drained
    ones be compared.
    """
    book, path = Overrides(), directory / FILE
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"longer than {MOST_BYTES} bytes")
        book.restore(json.loads(data))
    except FileNotFoundError:
        return book
    except OSError as exc:
        raise StateError(str(path), exc.strerror or str(exc)) from exc
    except ValueError as exc:
        raise StateError(str(path), f"holds no decisions: {exc}; repair or delete it") from exc
    return book


def save(directory: Path, state: Mapping[str, Any]) -> None:
    """Saves the `state()` of overrides. Raises StateError."""
    try:
        with written(directory / FILE) as file:
            json.dump(state, file, indent=1)
            file.write("\n")
        with state_errors(directory):
            sync_path(directory)  # the rename too
    except InputError as exc:
        raise StateError(exc.path, exc.reason) from exc


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
