"""A small made-up cluster as CSV text: hosts of eight drives, one of which is slow."""

from pathlib import Path

import numpy as np

START = 1_800_000_000
INTERVAL = 15
WINDOW = 20


def rows(seed: int = 1, slow: str | None = "disk3", hours: float = 3.0, factor: float = 2.0) -> list[str]:
    """Lines `ts,disk_id,throughput,latency`, drive after drive; one is slow from its first sample on."""
    chance = np.random.default_rng(seed)
    samples = round(hours * 3600 / INTERVAL)
    times = START + INTERVAL * (1 + np.arange(samples))
    common = 100 * np.exp(0.2 * chance.standard_normal(samples))
    found = []
    for drive in range(1, 9):
        name = f"disk{drive}"
        latency = common * np.exp(0.1 * chance.standard_normal(samples)) * (factor if name == slow else 1.0)
        throughput = 1e6 * np.exp(0.3 * chance.standard_normal(samples))
        found += [
            f"{time},{name},{load:.1f},{value:.2f}"
            for time, load, value in zip(times, throughput, latency, strict=True)
        ]
    return found


def text(lines: list[str]) -> str:
    """The lines below their header."""
    return "\n".join(["ts,disk_id,throughput,latency", *lines]) + "\n"


def write(path: Path, lines: list[str]) -> Path:
    """A CSV file of `lines`."""
    path.write_text(text(lines))
    return path


def large(path: Path, rows: int, disks: int = 100) -> Path:
    """A CSV file of `rows` samples, time after time, all disks alike."""
    chance = np.random.default_rng(1)
    names = [f"disk{disk}" for disk in range(disks)]
    with path.open("w") as file:
        file.write("ts,disk_id,throughput,latency\n")
        for at in range(0, rows, disks):
            time = START + INTERVAL * (at // disks)
            loads, values = chance.integers(10**6, 10**7, disks), chance.integers(900, 1100, disks)
            some = zip(names, loads.tolist(), values.tolist(), strict=True)
            file.writelines(f"{time},{name},{load},{value / 100}\n" for name, load, value in some)
    return path
