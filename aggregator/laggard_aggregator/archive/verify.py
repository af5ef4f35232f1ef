"""Checks every file of an archive against its checksums."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from laggard_aggregator.archive import layout, part_reader
from laggard_common.errors import InputError


@dataclass(frozen=True, slots=True)
class Verified:
    """Numbers of files: `checked`, `damaged` among them, `without` a digest, and `aside`: damaged before."""

    checked: int
    damaged: int
    without: int
    aside: int
    aside_folder: Path


def verify(directory: Path, report: Callable[[str], None]) -> Verified:
    """Checks all files; `report` is given a line for each damaged one.

    Raises InputError for a folder that is no archive or cannot be read.
    """
    layout.check_archive(directory)
    checked = damaged = without = 0
    with InputError.from_os_errors(directory):
        for part in layout.all_parts(directory):
            try:
                layout.check(part)
            except FileNotFoundError:
                continue  # merged meanwhile
            except layout.DamagedPartError as exc:
                report(str(exc))
                damaged += 1
            checked += 1
            without += not part.digest
        aside = part_reader.count_damaged(directory)
    return Verified(checked, damaged, without, aside, directory / layout.DAMAGED)
