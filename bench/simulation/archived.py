"""The rows of a simulated archive, read file by file."""

from collections import Counter
from pathlib import Path

from bench.simulation.record import FIELDS, SOURCE, Record
from laggard_aggregator.archive import layout
from laggard_aggregator.archive.schemas import column_of

_COLUMNS = [column_of(field.name) for field in FIELDS]
Rows = Counter[tuple[str, int, int]]
"""Node, serial number and place of the disk."""


def archived_rows(directory: Path, record: Record) -> Rows:
    """The samples in the archive; a row with other numbers than were read is a problem of `record`.

    Damaged files have no rows.
    """
    found: Rows = Counter()
    for _, where in layout.days(directory, "counters", SOURCE):
        for part in layout.parts(where):
            try:
                with layout.checked_file(part) as file:
                    table = file.read(["node", "place", *_COLUMNS])
            except layout.DamagedPartError:
                continue
            values = zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True)
            for node, place, row in zip(
                table["node"].to_pylist(), table["place"].to_pylist(), values, strict=True
            ):
                serial = row[-1]
                sample = record.nodes[node].samples.get(serial)
                if sample is None or sample.rows[place] != row:
                    record.problem(f"values: the archive has {row} of disk {place} of {node}")
                found[node, serial, place] += 1
    return found


def archived_closes(directory: Path) -> Counter[tuple[int, int]]:
    """Run and lsn of the window closes in the archive."""
    found: Counter[tuple[int, int]] = Counter()
    for _, where in layout.days(directory, "closes"):
        for part in layout.parts(where):
            try:
                with layout.checked_file(part) as file:
                    table = file.read(["run", "ordinal"])
            except layout.DamagedPartError:
                continue
            runs = table["run"].cast("int64").to_pylist()
            found.update(zip(runs, table["ordinal"].to_pylist(), strict=True))
    return found
