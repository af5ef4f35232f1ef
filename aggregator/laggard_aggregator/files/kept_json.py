"""JSON files in which passes remember how far they are, over a start."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from laggard_common.errors import ArchiveError

T = TypeVar("T")

_log = logging.getLogger(__name__)


def read_kept(path: Path, make: Callable[[Any], T], otherwise: str) -> T | None:
    """`make` of the content of a file; None where it is missing, or damaged: then a WARNING says `otherwise`.

    `make` raises an error of its own accord for other content. Raises ArchiveError where the file cannot be
    read: a pass that started over then would repeat everything, or forget when the last one was.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ArchiveError(str(path), f"cannot be read: {exc.strerror or exc}") from exc
    try:
        return make(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        _log.warning("%s is damaged: %s", path, otherwise)
        return None
