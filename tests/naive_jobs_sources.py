"""Slow, obvious second parsers of jobs' sources and of LMT's readings: one row at a time, in plain Python.

They follow docs/jobs.md and docs/mining.md and share no code with the readers.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, product
from zoneinfo import ZoneInfo

PENDING = {"PENDING", "REQUEUE_HOLD"}
RUNNING = {"RUNNING", "SUSPENDED", "COMPLETING"}
KILLED = {"NODE_FAIL", "TIMEOUT", "CANCELLED", "PREEMPTED", "REQUEUED", "OUT_OF_MEMORY"}
STATES = PENDING | RUNNING | KILLED | {"COMPLETED", "FAILED", "RESIZING"}
NO_NODES = {"", "None assigned", "None", "Unknown", "N/A", "(null)"}
UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True, slots=True)
class NaiveRun:
    """One run of a job, times in seconds since the epoch."""

    number: int
    state: str
    submit: int
    start: float | None
    end: float | None
    nodes: str
    cpus: int | None
    doubtful: bool


def epoch(text: str, zone: str) -> list[float]:
    """All times that a text can mean, the earlier first; empty where it is unknown. Raises ValueError."""
    if text in ("", "Unknown", "None", "N/A", "0"):
        return []
    if text.isascii() and text.isdigit():
        return [float(text)]
    local = datetime.fromisoformat(text)
    if local.tzinfo is not None:
        return [local.timestamp()]
    both = (local.replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() for fold in (0, 1))
    return sorted(set(both))


def chosen(times: Mapping[str, list[float]], elapsed: float | None) -> tuple[dict[str, float | None], bool]:
    """The only readings in order that last as long as is told; else the earliest, in doubt."""
    names = [name for name in ("submit", "start", "end") if times[name]]
    fitting = []
    for values in product(*(times[name] for name in names)):
        own = dict(zip(names, values, strict=True))
        in_order = list(values) == sorted(values)
        lasted = own["end"] - own["start"] if "start" in own and "end" in own else None
        if in_order and (elapsed is None or lasted is None or abs(lasted - elapsed) <= 1):
            fitting.append(own)
    is_certain = all(len(several) < 2 for several in times.values())
    best = fitting[0] if fitting and not is_certain else {name: times[name][0] for name in names}
    return {name: best.get(name) for name in times}, not is_certain and len(fitting) != 1


def settled(run: NaiveRun, eligible: float | None = None) -> NaiveRun:
    """A run whose times follow its state."""
    start = None if run.state in PENDING else run.start
    end = None if run.state in PENDING | RUNNING else run.end
    if start is not None and start < run.submit:
        start = float(run.submit)
    if run.state in KILLED and start is None and end is not None and run.nodes:
        start = min(max(float(run.submit), eligible or 0.0, end - 5.0), end)
    is_backwards = start is not None and end is not None and end < start
    if is_backwards:
        end = start
    is_lost = run.state not in PENDING | RUNNING and end is None
    in_doubt = start is not None and (run.state in KILLED or is_lost or is_backwards)
    return NaiveRun(
        run.number, run.state, run.submit, start, end, run.nodes, run.cpus, run.doubtful or in_doubt
    )


def sacct(text: str, separator: str, zone: str) -> list[NaiveRun]:
    """Runs of sacct's text; rows that cannot be used and steps are left out."""
    header, *lines = text.split("\n")
    names = header.split(separator)
    found = []
    for line in lines:
        cells = line.split(separator)
        if len(cells) > len(names) and names[-1] == "JobName":
            cells = [*cells[: len(names) - 1], separator.join(cells[len(names) - 1 :])]
        row = dict(zip(names, cells, strict=False))
        if len(cells) != len(names) or "." in row["JobIDRaw"] or not row["JobIDRaw"].isdigit():
            continue
        state = row["State"].upper().split(" ")[0].rstrip("+")
        try:
            times = {name: epoch(row[name.title()], zone) for name in ("submit", "start", "end")}
            cpus = count(row["AllocCPUS"])
        except ValueError:
            continue
        if state not in STATES or not times["submit"]:
            continue
        elapsed = float(row["ElapsedRaw"]) if row["ElapsedRaw"].isdigit() else None
        best, doubtful = chosen(times, elapsed)
        nodes = "" if row["NodeList"] in NO_NODES else row["NodeList"]
        submit = int(best["submit"] or 0)
        run = NaiveRun(int(row["JobIDRaw"]), state, submit, best["start"], best["end"], nodes, cpus, doubtful)
        found.append(settled(run))
    return found


def count(text: str) -> int | None:
    """A count, also with a unit; None for an empty or rounded one. Raises ValueError."""
    if not text:
        return None
    if text[-1] in UNITS:
        whole, _, rest = text[:-1].partition(".")
        if not (whole.isdigit() and (not rest or rest.isdigit())):
            raise ValueError(text)
        return None if rest else int(whole) * UNITS[text[-1]]
    if not text.isdigit():
        raise ValueError(text)
    return int(text)


def pbs(text: str) -> list[NaiveRun]:
    """Runs of the records S, E and R of OpenPBS, whose values have no spaces here."""
    found = []
    for line in text.splitlines():
        cells = line.split(";", 3)
        if len(cells) < 4 or cells[1] not in "SER":
            continue
        values = dict(pair.split("=", 1) for pair in cells[3].split(" ") if "=" in pair)
        number = cells[2].split(".")[0].split("[")[0]
        if not number.isdigit() or "start" not in values or "ctime" not in values:
            continue
        status = int(values.get("Exit_status", "0"))
        state = {"S": "RUNNING", "R": "REQUEUED"}.get(cells[1]) or (
            "CANCELLED" if status >= 256 else "COMPLETED" if status == 0 else "FAILED"
        )
        hosts = dict.fromkeys(part.split("/")[0] for part in values["exec_host"].split("+"))
        slots = [part.split("/")[1].partition("*")[2] or "1" for part in values["exec_host"].split("+")]
        end = float(values["end"]) if "end" in values and cells[1] != "S" else None
        run = NaiveRun(
            *(int(number), state, int(values["ctime"]), float(values["start"]), end),
            *(",".join(hosts), sum(map(int, slots)), False),
        )
        found.append(settled(run, float(values.get("etime", 0)) or None))
    return found


def flux(text: str) -> list[NaiveRun]:
    """Runs of Flux's JSON."""
    words = {"CANCELED": "CANCELLED", "RUN": "RUNNING", "SCHED": "PENDING"}
    found = []
    for job in json.loads(text)["jobs"]:
        if not job.get("t_submit"):
            continue
        told = job.get("result") or job["state"]
        end = job.get("t_cleanup") or job.get("t_inactive")
        run = NaiveRun(
            *(job["id"], words.get(told, told), int(job["t_submit"]), job.get("t_run") or None, end or None),
            *(job.get("nodelist", ""), job.get("ncores"), False),
        )
        found.append(settled(run))
    return found


def lmt_traffic(
    readings: Iterable[tuple[int, int, int | None]], longest: int
) -> dict[tuple[int, int, int], int]:
    """Bytes by OST, start and end, of (OST, time, counter), None for a missing one; falls are left out.

    A 0 behind traffic is a missing one, as is one that is not between its neighbours, which are in order.
    """
    by_ost: dict[int, list[tuple[int, int]]] = {}
    for ost, at, counter in sorted(readings, key=lambda each: each[:2]):
        own = by_ost.setdefault(ost, [])
        if counter is not None and counter >= 0 and not (counter == 0 and any(value for _, value in own)):
            own.append((at, counter))
    moved = {}
    for ost, own in by_ost.items():
        kept = [each for place, each in enumerate(own) if not _is_odd(own, place)]
        for (begin, low), (end, high) in pairwise(kept):
            if high >= low and 0 < end - begin <= longest:
                moved[ost, begin, end] = high - low
    return moved


def _is_odd(own: Sequence[tuple[int, int]], place: int) -> bool:
    if not 0 < place < len(own) - 1:
        return False
    (_, before), (_, value), (_, after) = own[place - 1 : place + 2]
    return before <= after and not before <= value <= after


def pytokio_hours(texts: Sequence[tuple[str, str]], zone: str) -> Iterator[tuple[float, float | None]]:
    """Start and end of pytokio's steps."""
    for start, end in texts:
        times = {"submit": [], "start": epoch(start, zone), "end": epoch(end, zone)}
        best, _ = chosen(times, None)
        begun = best["start"]
        assert begun is not None
        yield begun, best["end"]


def autumn(zone: str, year: int) -> datetime:
    """The moment, UTC, at which summer time ends in a year of the northern hemisphere."""
    at = datetime(year, 8, 1, tzinfo=ZoneInfo("UTC"))
    own = ZoneInfo(zone)
    while (at + timedelta(minutes=30)).astimezone(own).utcoffset() == at.astimezone(own).utcoffset():
        at += timedelta(minutes=30)
    return at + timedelta(minutes=30)
