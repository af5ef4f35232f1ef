"""`laggard archive verify`: checks every file of an archive against its checksums."""

import argparse

from laggard_aggregator.archive.verify import verify
from laggard_aggregator.files.json_line import line
from laggard_aggregator.status import formatting
from laggard_common.visible import visible

DAMAGED = 1


def run(args: argparse.Namespace) -> int:
    """Checks all files. Raises InputError for a folder that is no archive or cannot be read."""
    problems: list[str] = []

    def report(problem: str) -> None:
        problems.append(problem)
        if not args.json:
            print(visible(problem))

    files = verify(args.directory, report)
    if args.json:
        counts = {"checked": files.checked, "damaged": files.damaged, "without_digest": files.without}
        record = {"record": "archive", **counts, "damaged_before": files.aside, "problems": problems}
        print(line(record))
        return DAMAGED if files.damaged else 0
    print(f"{formatting.counted(files.checked, 'file')} checked, {files.damaged} damaged")
    if files.without:
        print(f"{formatting.counted(files.without, 'file')} of an earlier version without a digest")
    if files.aside:
        place = visible(str(files.aside_folder))
        print(f"{formatting.counted(files.aside, 'damaged file')} found before in {place}")
    return DAMAGED if files.damaged else 0
