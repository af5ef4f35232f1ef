"""Cost of `laggard layers`: events analysed a second and memory, and the overhead of recording.

python -m bench.layers [--events 10000000] [--format csv|parquet|perf]
python -m bench.layers --overhead [--rounds 5]     as root
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

_LAYERS = ("application", "syscall", "block", "device")
_SIZE = 65536
_AT_ONCE = 8


def events_table(events: int, seed: int) -> pa.Table:
    """Events of a run: reads at random offsets, eight at a time, in four nested layers, each ADMIT and
    CALLBACK.
    """
    random = np.random.default_rng(seed)
    requests = events // (2 * len(_LAYERS))
    begin = np.arange(requests) // _AT_ONCE * 1000 + np.arange(requests) % _AT_ONCE * 3
    begin = begin.astype(np.int64)
    offset = random.permutation(requests).astype(np.int64) * _SIZE
    parts = []
    for depth, layer in enumerate(_LAYERS):
        for event, time_us in (("ADMIT", begin + depth * 2), ("CALLBACK", begin + 900 - depth * 2)):
            parts.append(
                pa.table(
                    {
                        "layer": pa.DictionaryArray.from_arrays(np.zeros(requests, np.int32), [layer]),
                        "event": pa.DictionaryArray.from_arrays(np.zeros(requests, np.int32), [event]),
                        "request": np.arange(requests),
                        "time_us": time_us,
                        "file": pa.DictionaryArray.from_arrays(np.zeros(requests, np.int32), ["data.bin"]),
                        "offset": offset,
                        "bytes": np.full(requests, _SIZE),
                        "operation": pa.DictionaryArray.from_arrays(np.zeros(requests, np.int32), ["READ"]),
                    }
                )
            )
    return pa.concat_tables(parts).unify_dictionaries()


def write_perf(path: Path, events: int, seed: int) -> None:
    """The text of perf for system calls and block events of such a run."""
    random = np.random.default_rng(seed)
    requests = events // 5
    offsets = random.permutation(requests) * (_SIZE // 512)
    with path.open("w") as file:
        for at in range(requests):
            thread, now, sector = 100 + at % _AT_ONCE, 1000 + at // _AT_ONCE * 0.001, int(offsets[at])
            head = f"             app   100/{thread}   [000]  "
            file.write(
                f"{head}{now:.9f}: syscalls:sys_enter_pread64: fd: 0x00000003, buf: 0x7f, count: 0x00010000, "
                f"pos: 0x{sector * 512:08x}\n"
                f"{head}{now + 1e-5:.9f}: block:block_bio_queue: 7,0 RS {sector} + 128 [app]\n"
                f"{head}{now + 2e-5:.9f}: block:block_rq_issue: 7,0 RS 65536 () {sector} + 128 "
                "0x2,0,4 [app]\n"
                f"{head}{now + 8e-4:.9f}: block:block_rq_complete: 7,0 RS () {sector} + 128 0x2,0,4 [0]\n"
                f"{head}{now + 9e-4:.9f}: syscalls:sys_exit_pread64: 0x10000\n"
            )


def analyse(events: int, form: str) -> None:
    """Writes a trace, analyses it in a process of its own and prints CPU seconds and the largest memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"events.{form}"
        if form == "perf":
            write_perf(path, events, 1)
        elif form == "parquet":
            pq.write_table(events_table(events, 1), path)
        else:
            pacsv.write_csv(events_table(events, 1), path)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "laggard_aggregator.cli.main", "layers", str(path), "--json"],
            stdout=subprocess.PIPE,
            check=True,
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        records = [json.loads(line) for line in done.stdout.splitlines()]
        matched = [r["nested"] for r in records if r["record"] == "boundary"]
        print(
            f"{form}: {events:,} events, {path.stat().st_size >> 20} MiB: "
            f"{used.ru_utime + used.ru_stime:.1f} s of CPU, "
            f"{time.monotonic() - started:.1f} s, {used.ru_maxrss / 1024:.0f} MiB; nested "
            f"{min(matched, default=0):.4f}"
        )


_WORK = (
    "import os,sys,time\n"
    "fd=os.open(sys.argv[1],os.O_RDONLY)\n"
    "t=time.monotonic()\n"
    "for at in range(int(sys.argv[2])): os.pread(fd,4096,at%1024*4096)\n"
    "print(time.monotonic()-t)\n"
)
_READS = 200_000


def overhead(rounds: int) -> None:
    """Microseconds of a 4 KiB read from the page cache: not recorded, recorded, not recorded while another
    program is, in turns.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.write_bytes(os.urandom(4 << 20))
        work = [sys.executable, "-c", _WORK, str(data), str(_READS)]
        plain, recorded, beside = [], [], []
        for at in range(rounds):
            plain.append(_seconds(work))
            record = ["record", "-o", f"{folder}/run{at}", "--buffer-kib", "65536", "--", *work]
            recorded.append(
                _seconds([sys.executable, "-m", "laggard_aggregator.cli.main", "layers", *record])
            )
            beside.append(_beside(work, Path(folder) / f"beside{at}"))
        for name, found in (
            ("not recorded", plain),
            ("recorded", recorded),
            ("while another is recorded", beside),
        ):
            us = [seconds / _READS * 1e6 for seconds in found]
            low, middle, high = min(us), statistics.median(us), max(us)
            print(f"{name}: {low:.2f} / {middle:.2f} / {high:.2f} us a read (least / median / most)")


def _beside(work: list[str], output: Path) -> float:
    """Seconds of the work while a program that sleeps is recorded."""
    record = ["layers", "record", "-o", str(output), "--", "sleep", "600"]
    with subprocess.Popen(
        [sys.executable, "-m", "laggard_aggregator.cli.main", *record], stderr=subprocess.DEVNULL
    ) as recorder:
        while not (output / ".calls.part").exists():
            time.sleep(0.05)
        time.sleep(1.0)  # the instances are on by then
        try:
            return _seconds(work)
        finally:
            recorder.terminate()


def _seconds(command: list[str]) -> float:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def main() -> None:
    """Runs the measurement named by the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--format", choices=("csv", "parquet", "perf"), default="csv")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.overhead:
        overhead(args.rounds)
    else:
        analyse(args.events, args.format)


if __name__ == "__main__":
    main()
