"""sysstat activity files (`saDD`) as peer groups, through sysstat's own `sadf`.

These files hold only the combined await: no r_await, w_await or svctm. Values are averages over the file's
own interval, with two decimals.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from laggard_aggregator.offline.compressed import open_input
from laggard_aggregator.offline.csv_input import ONE_GROUP, Labels
from laggard_aggregator.offline.regrid import Rows
from laggard_aggregator.offline.sample_grid import NS
from laggard_common.errors import InputError

MAGIC = (b"\x96\xd5", b"\xd5\x96")
METRIC = "await"
_COLUMNS = (METRIC, "operations", "throughput", "request_bytes", "read_share")
_TIMEOUT_SECONDS = 600

_Sample = tuple[str, int, tuple[float, ...]]
"""Component, time in ns, and one value for each of _COLUMNS."""


def read_sysstat(paths: Sequence[Path], interval_seconds: float, by_file: bool = False) -> Iterator[Rows]:
    """Await and load of every disk in `paths`: one group, or one for each file's stem with `by_file`.

    `interval_seconds`: detection interval to which operation counts are scaled.
    Components are `node/device`; partitions are left out. A sample belongs to the interval that it ends.
    Raises InputError when sadf is not there, does not know the file, or finds no disks in it.
    """
    groups: dict[str, list[_Sample]] = defaultdict(list)
    for path in paths:
        found = list(_samples(_hosts(path), interval_seconds))
        if not found:
            raise InputError(
                str(path), "no disk statistics in this activity file (sadc -S DISK records them)"
            )
        groups[path.stem if by_file else ONE_GROUP] += found
    for group in sorted(groups):
        names, times, values = zip(*groups[group], strict=True)
        labels = Labels()
        components, component = labels.ordered(labels.encode(pa.array(names, pa.string())))
        columns = dict(zip(_COLUMNS, np.array(values, dtype=np.float64).T.copy(), strict=True))
        yield Rows(
            group=group,
            components=components,
            component=component,
            time_ns=np.array(times, dtype=np.int64),
            metrics={METRIC: columns.pop(METRIC)},
            load=columns,
            weight="operations",
        )


def _samples(hosts: Iterable[Mapping[str, Any]], interval_seconds: float) -> Iterator[_Sample]:
    """The samples in the output of sadf."""
    for host in hosts:
        for statistic in host.get("statistics", ()):
            disks = statistic.get("disk", ())
            devices = {disk["disk-device"] for disk in disks}
            time_ns = _middle_ns(statistic["timestamp"]) if disks else 0
            for disk in disks:
                if not _is_partition(disk["disk-device"], devices):
                    name = f"{host['nodename']}/{disk['disk-device']}"
                    yield name, time_ns, _values(disk, interval_seconds)


def _middle_ns(stamp: Mapping[str, Any]) -> int:
    """The middle of the interval that a sample describes; sadf gives its end, in UTC."""
    end = datetime.fromisoformat(f"{stamp['date']}T{stamp['time']}").replace(tzinfo=UTC)
    return int(end.timestamp()) * NS - int(stamp["interval"]) * NS // 2


def _values(disk: Mapping[str, float], seconds: float) -> tuple[float, ...]:
    """One entry for each of _COLUMNS. Versions before 12 print sectors where later ones print kB."""
    read = disk.get("rkB", disk.get("rd_sec", 0.0) / 2)
    written = disk.get("wkB", disk.get("wr_sec", 0.0) / 2)
    size = disk.get("areq-sz", disk.get("avgrq-sz", 0.0) / 2)
    moved = read + written
    share = read / moved if moved else float("nan")
    return (disk["await"], disk["tps"] * seconds, moved * 1024, size * 1024, share)


def _is_partition(device: str, devices: set[str]) -> bool:
    """True when the kernel's naming makes `device` a partition of another of `devices`."""
    letters = re.fullmatch(r"(.*[^0-9])[0-9]+", device)
    digits = re.fullmatch(r"(.*[0-9])p[0-9]+", device)
    return bool((letters and letters[1] in devices) or (digits and digits[1] in devices))


def is_json(head: bytes) -> bool:
    """True for the begin of a file that `sadf -j` printed."""
    return head.lstrip()[:1] == b"{" and b'"sysstat"' in head


def _hosts(path: Path) -> list[dict[str, Any]]:
    """Parsed `sadf -j` output of a file's disks, or the file if it is such output."""
    with open_input(path) as file:
        if is_json(file.read(512)):
            file.seek(0)
            return _parsed(path, file.read())
    return _parsed(path, _printed(path))


def _parsed(path: Path, text: bytes) -> list[dict[str, Any]]:
    try:
        hosts: list[dict[str, Any]] = json.loads(text)["sysstat"]["hosts"]
    except (ValueError, KeyError, TypeError) as exc:
        raise InputError(str(path), "not the JSON of sadf, or cut short") from exc
    return hosts


def _printed(path: Path) -> bytes:
    """Output of `sadf -j`; the file is converted first where sadf requires it."""
    sadf = shutil.which("sadf")
    if sadf is None:
        raise InputError(str(path), "a sysstat activity file: reading it needs sadf (install sysstat)")
    with _plain(path) as plain:
        run = _run([sadf, "-j", str(plain), "--", "-d"], path)
        if run.returncode and b"sadf -c" in run.stderr + run.stdout:
            with tempfile.TemporaryDirectory(prefix="laggard-") as folder:
                converted = Path(folder) / "converted"
                converted.write_bytes(_run([sadf, "-c", str(plain)], path).stdout)
                run = _run([sadf, "-j", str(converted), "--", "-d"], path)
    if run.returncode:
        lines = (run.stderr or run.stdout).decode(errors="replace").split("\n")
        raise InputError(str(path), f"sadf cannot read it: {lines[0].replace(str(plain), path.name)[:200]}")
    return run.stdout


def _run(command: list[str], path: Path) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            env={**os.environ, "LC_ALL": "C", "S_TIME_FORMAT": "ISO", "TZ": "UTC"},
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise InputError(str(path), f"sadf cannot be run: {exc}") from exc


@contextmanager
def _plain(path: Path) -> Iterator[Path]:
    """The file itself, or a decompressed copy of it in a temporary folder."""
    with path.open("rb") as file:
        if file.read(2) in MAGIC:
            yield path
            return
    with tempfile.TemporaryDirectory(prefix="laggard-") as folder:
        copy = Path(folder) / path.stem
        with open_input(path) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield copy
