"""Detects the format of the input from its content."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from laggard_aggregator.archive.layout import is_archive
from laggard_aggregator.offline.compressed import open_input
from laggard_aggregator.offline.sysstat_input import MAGIC as SYSSTAT_MAGIC
from laggard_common.errors import InputError

Kind = Literal["archive", "sysstat", "csv"]


def kind_of(paths: Sequence[Path]) -> Kind:
    """The common format of all `paths`. Raises InputError if they are unreadable or their formats differ."""
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
    with open_input(path) as file:
        head = file.read(512)
    if head[:2] in SYSSTAT_MAGIC:
        return "sysstat"
    if b"\0" in head:
        raise InputError(str(path), "a binary file, expected CSV or a sysstat activity file")
    return "csv"
