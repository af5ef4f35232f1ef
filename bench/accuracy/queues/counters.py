"""Counters of devices as the kernel keeps them, whole milliseconds, written as PCP's raw CSV."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.queues.device import KIB, Floats
from bench.accuracy.queues.requests import ServedRequests

Integers = NDArray[np.int64]

METRICS = ("read", "write", "read_rawactive", "write_rawactive", "read_bytes", "write_bytes", "avactive")
"""PCP's `disk.dev` metrics in the order of columns: requests, ms of requests, KiB, ms in use."""

EPOCH_S = 1_767_571_200
"""2026-01-05 00:00 UTC, the start of all series."""

INTERVAL_S = 15.0
JITTER = 0.02
"""Standard deviation of a sample's time, of the interval."""

LOST_SHARE = 0.004
GAP_S = 180.0
GAP_EVERY_S = 28_800
"""One gap of `GAP_S` is begun for each of these seconds."""


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """When a server's counters are read: ms since the start, shape (samples,), and which samples arrive."""

    time_ms: Floats
    kept: NDArray[np.bool_]


def sample_times(seconds: int, generator: np.random.Generator) -> SampleTimes:
    """Returns the times of one server's samples, some of them lost."""
    count = int(seconds / INTERVAL_S)
    jitter = generator.normal(0, JITTER, count).clip(-0.2, 0.2)
    time_ms = (np.arange(1, count + 1) + jitter + generator.uniform(0, 0.3)) * INTERVAL_S * 1e3
    kept = generator.random(count) >= LOST_SHARE
    for _ in range(seconds // GAP_EVERY_S + 1):
        begin = int(generator.integers(count))
        kept[begin : begin + int(GAP_S / INTERVAL_S) + 1] = False
    return SampleTimes(time_ms, kept)


def counters(requests: ServedRequests, time_ms: Floats) -> Integers:
    """Returns the counters at each time, shape (times, `METRICS`), all from 0.

    Like the kernel's, they count a request and its whole time when it completes, and ms in use as they pass.
    """
    order = np.argsort(requests.completion_ms, kind="stable")
    taken_ms = (requests.completion_ms - requests.arrival_ms)[order]
    complete = np.searchsorted(requests.completion_ms[order], time_ms, "right")
    columns: list[Floats] = []
    for amount in (np.ones(order.size), taken_ms, requests.size[order] / KIB):
        columns += [
            np.concatenate([[0.0], np.cumsum(amount * mask)])[complete]
            for mask in (requests.is_read[order], ~requests.is_read[order])
        ]
    columns.append(_in_use_ms(requests, time_ms))
    return np.floor(np.column_stack(columns)).astype(np.int64)


def _in_use_ms(requests: ServedRequests, time_ms: Floats) -> Floats:
    """Returns for how long there was a request at the device up to each time, ms."""
    if not requests.arrival_ms.size:
        return np.zeros_like(time_ms)
    end_ms = np.maximum.accumulate(requests.completion_ms)
    begin_ms = np.maximum(requests.arrival_ms, np.concatenate([[0.0], end_ms[:-1]]))
    total_ms = np.concatenate([[0.0], np.cumsum(end_ms - begin_ms)])
    last = np.searchsorted(begin_ms, time_ms, "right") - 1
    within_ms = np.minimum(time_ms, end_ms[last]) - begin_ms[last]
    in_use: Floats = np.where(last < 0, 0.0, total_ms[last] + within_ms)
    return in_use


def device_name(member: int) -> str:
    """Returns a disk's name, sdaa to sdzz."""
    return f"sd{chr(ord('a') + member // 26)}{chr(ord('a') + member % 26)}"


def write_pcp_csv(
    path: Path, samples: SampleTimes, devices: Iterable[tuple[str, Integers]], generator: np.random.Generator
) -> None:
    """Writes one server's counters, as `pmrep --output csv --raw` does; no counter begins at 0."""
    head, columns = ["Time"], []
    for name, values in devices:
        head += [f'"disk.dev.{metric}-{name}"' for metric in METRICS]
        columns.append(values + generator.integers(10**6, 10**8, len(METRICS)))
    rows = np.concatenate(columns, axis=1)[samples.kept].tolist()
    moments = (EPOCH_S * 1000 + samples.time_ms[samples.kept]).astype(np.int64).astype("M8[ms]")
    stamps = [stamp.replace("T", " ") for stamp in np.datetime_as_string(moments).tolist()]
    with path.open("w") as file:
        file.write(",".join(head) + "\n")
        file.writelines(
            f"{stamp},{','.join(map(str, row))}\n" for stamp, row in zip(stamps, rows, strict=True)
        )
