"""Which kind of input the user named, told by what is in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from laggard_aggregator.archive.layout import is_archive
from laggard_aggregator.offline.sysstat_input import is_sysstat
from laggard_common.errors import InputError

Kind = Literal["archive", "sysstat", "csv"]


def kind_of(paths: Sequence[Path]) -> Kind:
    """The one kind of all `paths`. Raises InputError when they cannot be read or are of several kinds."""
    first = _kind(paths[0])
    for path in paths[1:]:
        kind = _kind(path)
        if kind != first:
            raise InputError(str(path), f"{kind} input among {first} input: one run takes one kind")
    if first == "archive" and len(paths) > 1:
        raise InputError(str(paths[1]), "one run takes one archive")
    return first


def _kind(path: Path) -> Kind:
    if path.is_dir():
        if not is_archive(path):
            raise InputError(str(path), "is a directory and not a Laggard archive, expected files")
        return "archive"
    return "sysstat" if is_sysstat(path) else "csv"
