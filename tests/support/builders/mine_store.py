"""A folder of small Darshan logs, a Slurm file and LMT data of the same jobs."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.builders.darshan_log import MPIIO, STDIO, LogWriter

START = 1_750_000_000
MIB = 1 << 20
OSTS = (0, 63, 64, 255, 1000)


def logs(directory: Path, count: int) -> list[Path]:
    """Logs of `count` jobs of three applications, over four days; job 5 has two logs."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(1)
    made = []
    for number in range(count):
        processes = int(chance.choice([1, 4, 16, 2048]))
        log = LogWriter(
            job=max(number, 1) if number != 6 else 5,
            start=START + number * 4000,
            processes=processes,
            command=f"/opt/app{number % 3} -x",
        )
        for rank in range(min(processes, 6)):
            name, ost = f"/scratch/job{number}/out.{rank}", OSTS[(number + rank) % len(OSTS)]
            begin, took = float(chance.uniform(1, 5)), float(chance.uniform(0.5, 20))
            bins = {
                "SIZE_WRITE_1K_10K": 10,
                "SIZE_WRITE_1M_4M": 30,
                "CONSEC_WRITES": int(chance.integers(0, 40)),
                "META_TIME": 0.1 * rank,
            }
            log.posix(
                name, rank, "write", begin, begin + took, requests=40, bytes=512 * MIB, SEQ_WRITES=30, **bins
            )
            log.stripes(name, [ost, 63] if rank == 1 and ost != 63 else [ost], rank)
            if rank % 2:
                log.posix(
                    f"{name}.in",
                    rank,
                    "read",
                    begin,
                    begin + 2 * took,
                    requests=9,
                    bytes=rank * MIB,
                    SEQ_READS=4,
                )
        made.append(log.write(directory / f"job{number:03d}.darshan"))
    return made


def counted_logs(directory: Path) -> None:
    """Logs of eight jobs with round numbers, whose statistics are counted by hand in the tests."""
    directory.mkdir(parents=True)

    def started(job: int, program: str, processes: int) -> LogWriter:
        return LogWriter(job=job, processes=processes, command=f"/opt/{program} -n")

    def print_lines(log: LogWriter, name: str, rank: int, count: int, amount: int) -> None:
        times = {"WRITE_START_TIMESTAMP": 1.0, "WRITE_END_TIMESTAMP": 2.0, "WRITE_TIME": 0.1}
        log.record(STDIO, name, rank, WRITES=count, BYTES_WRITTEN=amount, **times)

    alone = started(1, "a", 1)
    alone.posix("/scratch/1", 0, "write", 1.0, 2.0, requests=10, bytes=400, SEQ_WRITES=5)
    alone.stripes("/scratch/1", [0])
    shared = started(2, "a", 4)
    shared.posix("/scratch/2", -1, "write", 1.0, 2.0, requests=4, bytes=100, SEQ_WRITES=4)
    shared.stripes("/scratch/2", [0, 1])
    for rank in range(4):
        print_lines(shared, "<STDOUT>", rank, 100, 50)
    private = started(3, "b", 4)
    for rank in range(4):
        private.posix(f"/scratch/3.{rank}", rank, "write", 1.0, 2.0, requests=2, bytes=100, SEQ_WRITES=1)
    print_lines(private, "<STDERR>", 0, 3, 25)
    printing = started(4, "b", 8)
    print_lines(printing, "<STDOUT>", 0, 70, 1000)
    reading = started(5, "c", 2000)
    for number in range(3):
        reading.posix(f"/scratch/5.{number}", -1, "read", 1.0, 2.0, requests=3, bytes=300)
    collective = started(7, "d", 9000)
    collective.posix("/scratch/7", -1, "write", 1.0, 2.0, requests=2, bytes=200)
    collective.record(MPIIO, "/scratch/7", -1, COLL_OPENS=9000, COLL_WRITES=5, BYTES_WRITTEN=200)
    independent = started(8, "d", 2)
    independent.posix("/scratch/8", -1, "write", 1.0, 2.0, requests=1, bytes=100, SEQ_WRITES=1)
    independent.record(MPIIO, "/scratch/8", -1, INDEP_OPENS=2, INDEP_WRITES=1, BYTES_WRITTEN=100)
    for log in (alone, shared, private, printing, reading, collective, independent):
        log.write(directory / f"{log.job}.darshan")
    for part in range(2):  # two logs of eight processes each, with the same files
        both = started(6, "c", 8)
        for number in range(20):
            counters = {"READS": 1, "BYTES_READ": 10, "SEQ_READS": 1}
            both.posix(f"/scratch/6.{number}", -1, "write", 1.0, 2.0, bytes=10, **counters)
        both.write(directory / f"6.{part}.darshan")


def sacct(path: Path, count: int) -> Path:
    """Accounting of the same jobs, with one step each; times without a zone, in New York's."""
    lines = ["JobIDRaw|JobID|User|JobName|State|Start|End|NNodes|NodeList"]
    for number in range(1, count):
        start = datetime.fromtimestamp(START + number * 4000 - 4 * 3600 - 2, UTC).strftime(
            "%Y-%m-%dT%H:%M:%S"
        )
        end = datetime.fromtimestamp(START + number * 4000 - 4 * 3600 + 105, UTC).strftime(
            "%Y-%m-%dT%H:%M:%S"
        )
        rest = f"anna|job|COMPLETED|{start}|{end}|2|node[1-2]"
        lines += [f"{number}{step}|{number}{step}|{rest}" for step in ("", ".batch", ".0")]
    path.write_text("\n".join(lines) + "\n")
    return path


def lmt(path: Path, readings: int = 120, page_bytes: int = 4096) -> Path:
    """LMT's database: four OSTs over ten minutes, 5 s apart; one counter starts over."""
    with closing(sqlite3.connect(path)) as opened:
        opened.execute(f"pragma page_size = {page_bytes}")
        opened.execute("create table TIMESTAMP_INFO (TS_ID, TIMESTAMP)")
        opened.execute("create table OST_INFO (OST_ID, OST_NAME)")
        opened.execute("create table OST_DATA (OST_ID, TS_ID, READ_BYTES, WRITE_BYTES)")
        for at in range(readings):
            moment = datetime.fromtimestamp(START + 4000 + at * 5, UTC).strftime("%Y-%m-%d %H:%M:%S")
            opened.execute("insert into TIMESTAMP_INFO values (?, ?)", (at, moment))
            for ost in range(4):
                written = 1000 + at * 64 * MIB if not (ost == 2 and at >= 60) else (at - 60) * 64 * MIB
                opened.execute("insert into OST_DATA values (?, ?, ?, ?)", (ost, at, at * MIB, written))
        for ost, name in enumerate(("0000", "003f", "0040", "00ff")):
            opened.execute("insert into OST_INFO values (?, ?)", (ost, f"scratch-OST{name}"))
        opened.commit()
    return path


def hdf5(
    path: Path, form: str, written: NDArray[np.int64], lost: tuple[int, int], gap: float = np.nan
) -> Path:
    """Bytes written (T, OSTs from 14) every 5 s, twice as many read. `form`: h5lmt, tokio bytes, tokio rates.

    `lost`: time and OST without a reading. h5lmt has rates by OST and the end of an interval, TOKIO's series
    bytes or rates by its beginning and OST, `gap` for lost ones: pytokio fills in -0.0.
    """
    import h5py  # noqa: PLC0415

    times = START + 5 * np.arange(len(written) + 1)
    names = np.array([f"scratch-OST{14 + ost:04x}".encode() for ost in range(written.shape[1])])
    with h5py.File(path, "w") as file:
        if form == "h5lmt":
            file["FSStepsGroup/FSStepsDataSet"] = times
            missing = np.zeros((written.shape[1], times.size), np.int32)
            missing[lost[1], lost[0] + 1] = 1
            file["FSMissingGroup/FSMissingDataSet"] = missing
        else:
            file["datatargets/timestamps"] = times[:-1]
        for kind, factor in (("Read", 2.0), ("Write", 1.0)):
            values = factor * written.astype(np.float64)
            if form == "h5lmt":
                dataset = file.create_dataset(
                    f"OST{kind}Group/OSTBulk{kind}DataSet", data=np.pad(values.T / 5, ((0, 0), (1, 0)))
                )
                dataset.attrs["OSTNames"] = names
                continue
            values[lost] = gap
            unit = form.removeprefix("tokio ")
            scaled = values / 5 if unit == "rates" else values
            dataset = file.create_dataset(f"datatargets/{kind.lower()}{unit}", data=scaled)
            dataset.attrs["columns"] = names
    return path
