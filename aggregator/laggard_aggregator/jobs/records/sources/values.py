"""Values of JSON records, whichever of their forms a version of the source writes.

Slurm's data parsers write a number as itself or as `{"set": true, "infinite": false, "number": 3}`, a state
as text or as a list; null and unknown keys occur everywhere.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from laggard_aggregator.jobs.records.model import JobDataError
from laggard_aggregator.jobs.records.settle import MAX_SECONDS, STATES

_MOST: Final = (1 << 63) - 1
_CLUSTER: Final = re.compile(r"[0-9A-Za-z_.\-]{1,64}", re.ASCII)
_ID: Final = re.compile(r"[0-9A-Za-z_.@:\[\]+\-\u0192]{1,128}")


def at(record: Any, *path: str) -> Any:
    """The value at `path` of nested objects; None where there is none."""
    for name in path:
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def number(value: Any) -> float | int | None:
    """A number; None for one that is not set or infinite. Raises JobDataError for other values."""
    if isinstance(value, Mapping):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None or value == "":
        return None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,9})?", value, re.ASCII):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise JobDataError(f"expected a number, got {str(value)[:40]!r}")
    if abs(value) > _MOST:
        raise JobDataError("number beyond 64 bits")
    return value


def integer(value: Any) -> int | None:
    """A whole number, as `number` has it."""
    known = number(value)
    return None if known is None else int(known)


def seconds(value: Any) -> float | None:
    """A time, seconds since the epoch; None for 0, which stands for unknown."""
    known = number(value)
    if known is not None and not 0 <= known < MAX_SECONDS:
        raise JobDataError(f"expected seconds since the epoch, got {known}")
    return float(known) if known else None


def text(value: Any) -> str:
    """A text, or the first of a list; empty for null and other values.

    Halves of surrogate pairs, which JSON can escape and no file can hold, are question marks.
    """
    if isinstance(value, list):
        value = value[0] if value else ""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def state(value: Any, words: Mapping[str, str] | None = None) -> str:
    """A state of Slurm; of a list the first that is one, as flags follow. `words`: other names of states.

    Raises JobDataError for none.
    """
    several: Iterable[Any] = value if isinstance(value, list) else [value]
    for item in several:
        if isinstance(item, str) and item:
            word = item.upper().split()[0].rstrip("+") if item.split() else ""
            word = (words or {}).get(word, word)
            if word in STATES:
                return word
    raise JobDataError(f"no state of a job: {str(value)[:40]!r}")


def cluster_name(value: Any, default: str) -> str:
    """Name of a cluster. Raises JobDataError for text that is none."""
    name = text(value) or default
    if not _CLUSTER.fullmatch(name):
        raise JobDataError(f"no name of a cluster: {name[:40]!r}")
    return name


def identifier(value: str) -> str:
    """A unique id of a scheduler. Raises JobDataError for text that is none."""
    if not _ID.fullmatch(value):
        raise JobDataError(f"no id of a job: {value[:40]!r}")
    return value


def node_list(value: Any) -> str:
    """A list of nodes as text, of text or of a list of names."""
    if isinstance(value, list):
        return ",".join(text(item) for item in value if isinstance(item, str))
    return text(value)
