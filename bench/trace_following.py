"""CPU time of an agent's thread that follows trace logs: `python -m bench.trace_following`.

Idle: logs that do not grow, looked at every few seconds as the agent does. Busy: one log that gains lines of
the format `laggard`, random reads, so that nothing folds, at a rate until all of them are documents.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

from bench.machine import machine
from laggard_agent.sampling.batcher import EncodedBatch
from laggard_agent.settings import TracesSettings
from laggard_agent.tools.iotrace.follow import TraceFollower
from laggard_agent.transport.outbox import POLL_SECONDS
from laggard_common.clock import SystemClock


def lines(count: int, chance: random.Random) -> str:
    """Reads at random places."""
    return "".join(
        f"1763650000.{at:09d} cn-17 read 4121:17 {chance.randrange(1 << 40)} 4096 /scratch/in.dat\n"
        for at in range(count)
    )


def follower(folder: Path) -> TraceFollower:
    """Follows the logs of a folder, whose documents are due at once."""
    settings = TracesSettings(files=(f"{folder}/{{job}}/*.trace",), send_seconds=1.0)
    return TraceFollower(settings, "cn-17", folder, Path("/proc"), SystemClock())


def idle_seconds(logs: int, polls: int) -> float:
    """CPU seconds of one look at logs that were read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "77").mkdir()
        for log in range(logs):
            (folder / "77" / f"{log}.trace").write_text(lines(10, random.Random(log)))
        following = follower(folder)
        for _ in range(2):
            following.read()
            following.send(lambda _: True)
        before = time.process_time()
        for _ in range(polls):
            following.read()
            following.send(lambda _: True)
        return (time.process_time() - before) / polls


def busy_seconds(count: int) -> tuple[float, int]:
    """CPU seconds of `count` lines until they are documents, and the bytes of these."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "77").mkdir()
        (folder / "77" / "app.trace").write_text(lines(count, random.Random(1)))
        following = follower(folder)
        sent: list[int] = []

        def store(batch: EncodedBatch) -> bool:
            sent.append(len(batch.payload))
            return True

        before = time.process_time()
        while True:
            following.read()
            if not following.send(store):
                break
        return time.process_time() - before, sum(sent)


def main() -> None:
    """Prints both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=200_000)
    options = parser.parse_args()
    for logs in (0, 10, 256):
        spent = idle_seconds(logs, 100)
        print(f"{logs} idle logs: {spent * 1e3:.2f} ms a look, {spent / POLL_SECONDS:.3%} of a core")
    spent, size = busy_seconds(options.lines)
    each = f"{spent / options.lines * 1e6:.1f} us of CPU and {size / options.lines:.1f} bytes"
    print(f"{options.lines:,} lines of which nothing folds: {each} a line")
    print(f"\n{machine('zstandard', 'msgpack')}")


if __name__ == "__main__":
    main()
