"""A folder of small Darshan logs, a Slurm file and LMT data of the same jobs."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tests.support.builders.darshan_log import LogWriter

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


def lmt(path: Path) -> Path:
    """LMT's database: four OSTs over ten minutes, 5 s apart; one counter starts over."""
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("create table TIMESTAMP_INFO (TS_ID, TIMESTAMP)")
        opened.execute("create table OST_INFO (OST_ID, OST_NAME)")
        opened.execute("create table OST_DATA (OST_ID, TS_ID, READ_BYTES, WRITE_BYTES)")
        for at in range(120):
            moment = datetime.fromtimestamp(START + 4000 + at * 5, UTC).strftime("%Y-%m-%d %H:%M:%S")
            opened.execute("insert into TIMESTAMP_INFO values (?, ?)", (at, moment))
            for ost in range(4):
                written = 1000 + at * 64 * MIB if not (ost == 2 and at >= 60) else (at - 60) * 64 * MIB
                opened.execute("insert into OST_DATA values (?, ?, ?, ?)", (ost, at, at * MIB, written))
        for ost, name in enumerate(("0000", "003f", "0040", "00ff")):
            opened.execute("insert into OST_INFO values (?, ?)", (ost, f"scratch-OST{name}"))
        opened.commit()
    return path
