"""`laggard archive verify`: checks every file of an archive against its checksums."""

import argparse

from laggard_aggregator.archive.verify import verify
from laggard_aggregator.status import formatting
from laggard_common.visible import visible

DAMAGED = 1


def run(args: argparse.Namespace) -> int:
    """Checks all files. Raises InputError for a folder that is no archive or cannot be read."""
    found = verify(args.directory, lambda line: print(visible(line)))
    print(f"{formatting.counted(found.checked, 'file')} checked, {found.damaged} damaged")
    if found.without:
        print(f"{formatting.counted(found.without, 'file')} of an earlier version without a digest")
    if found.aside:
        place = visible(str(found.aside_folder))
        print(f"{formatting.counted(found.aside, 'damaged file')} found before in {place}")
    return DAMAGED if found.damaged else 0
