"""The group commit of one journal, and of two that hold the same: `python -m bench.mirror [FOLDER FOLDER]`.

A site of TaihuLight's size journals 3 MB a second in some 50 commits. Acknowledgements wait for each
commit, and would wait for that of a second journal, too. FOLDERs: one on each disk; by default both are
temporary folders of one disk, where two fsyncs at once wait for each other. Prints the time of a commit,
and the part of a day's acknowledged data that a journal holds: the rest is in the archive alone.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.machine import machine
from laggard_aggregator.log.entries import BatchEntry, LogEntry
from laggard_aggregator.log.journal import Journal

COMMITS_A_SECOND, SECONDS = 50, 20
BATCHES, BATCH_BYTES = 125, 480
"""Of a commit: 60 kB."""
SNAPSHOT_SECONDS, DAY_SECONDS = 60.0, 86_400.0
TOPIC = "laggard/1/site/compute/cn-12345/data/host"


def commits(journals: Sequence[Journal], pool: ThreadPoolExecutor) -> list[float]:
    """Seconds of each commit to all `journals` at once."""
    for journal in journals:
        journal.rotate()
    entries: list[LogEntry] = [BatchEntry(n, 0, TOPIC, bytes(BATCH_BYTES)) for n in range(BATCHES)]
    began, found = time.monotonic(), []
    for number in range(COMMITS_A_SECOND * SECONDS):
        time.sleep(max(began + number / COMMITS_A_SECOND - time.monotonic(), 0))
        before = time.monotonic()
        list(pool.map(lambda journal: journal.append(entries), journals))
        found.append(time.monotonic() - before)
    for journal in journals:
        journal.close()
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", metavar="FOLDER", type=Path, nargs="*", help="none or two")
    given = parser.parse_args().folders
    if len(given) not in (0, 2):
        parser.error("give two folders, or none")
    print(machine())
    with tempfile.TemporaryDirectory(prefix="laggard-mirror-") as temporary, ThreadPoolExecutor(2) as pool:
        folders = given or [Path(temporary) / "a", Path(temporary) / "b"]
        print("| journals | commit, ms: median | 99 % |\n|---|---:|---:|")
        for name, some in (("one", folders[:1]), ("two at once", folders)):
            made = [_journal(folder / name.replace(" ", "-")) for folder in some]
            taken = sorted(commits(made, pool))
            median, most = statistics.median(taken), taken[len(taken) * 99 // 100]
            print(f"| {name} | {median * 1000:.1f} | {most * 1000:.1f} |", flush=True)
    share = 2 * SNAPSHOT_SECONDS / DAY_SECONDS
    print(f"\nA journal holds two snapshot periods: {share:.2%} of a day's acknowledged data.")


def _journal(folder: Path) -> Journal:
    folder.mkdir(parents=True)
    return Journal(folder, 2**31)


if __name__ == "__main__":
    main()
