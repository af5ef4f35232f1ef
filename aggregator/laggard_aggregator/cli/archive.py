"""`laggard archive verify`: checks every file of an archive against its checksums."""

import argparse

from laggard_aggregator.archive import layout, part_reader
from laggard_aggregator.files.json_line import line
from laggard_aggregator.status.formatting import counted
from laggard_common.errors import InputError
from laggard_common.visible import visible

DAMAGED = 1


def run(args: argparse.Namespace) -> int:
    """Checks all files. Raises InputError for a folder that is not an archive or cannot be read."""
    layout.check_archive(args.directory)
    checked = without = 0
    problems: list[str] = []
    with InputError.from_os_errors(args.directory):
        for part in layout.all_parts(args.directory):
            try:
                layout.check(part)
            except FileNotFoundError:
                continue  # merged meanwhile
            except layout.DamagedPartError as exc:
                problems.append(str(exc))
                if not args.json:
                    print(visible(str(exc)))
            checked += 1
            without += not part.digest
        aside = part_reader.count_damaged(args.directory)
    if args.json:
        counts = {"checked": checked, "damaged": len(problems), "without_digest": without}
        print(line({"record": "archive", **counts, "damaged_before": aside, "problems": problems}))
    else:
        print(f"{counted(checked, 'file')} checked, {len(problems)} damaged")
        if without:
            print(f"{counted(without, 'file')} of an earlier version without a digest")
        if aside:
            place = visible(str(args.directory / layout.DAMAGED))
            print(f"{counted(aside, 'damaged file')} found before in {place}")
    return DAMAGED if problems else 0
