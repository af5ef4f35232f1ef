"""`laggard archive verify`: checks every file of an archive against its checksums."""

import argparse

from laggard_aggregator.archive import layout, part_reader
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.status import formatting
from laggard_common.errors import InputError
from laggard_common.visible import visible

DAMAGED = 1


def run(args: argparse.Namespace) -> int:
    """Checks all files. Raises InputError for a folder that is no archive or cannot be read."""
    directory = ArchiveReader(args.directory).directory
    checked = damaged = without = 0
    with InputError.from_os_errors(directory):
        for part in layout.all_parts(directory):
            try:
                layout.check(part)
            except FileNotFoundError:
                continue  # merged meanwhile
            except layout.DamagedPartError as exc:
                print(visible(str(exc)))
                damaged += 1
            checked += 1
            without += not part.digest
        aside = part_reader.count_damaged(directory)
    print(f"{formatting.counted(checked, 'file')} checked, {damaged} damaged")
    if without:
        print(f"{formatting.counted(without, 'file')} of an earlier version without a digest")
    if aside:
        place = visible(str(directory / layout.DAMAGED))
        print(f"{formatting.counted(aside, 'damaged file')} found before in {place}")
    return DAMAGED if damaged else 0
