"""PBS accounting logs (OpenPBS, PBS Professional, Torque): `time;type;id;key=value key=value ...`.

Records S (start), E (end) and R (rerun) name a run by its id and its start; a rerun has a start of its own.
Others are skipped: jobs that never started have no nodes. PBS Professional and Torque give the same negative
exit statuses other meanings: a record tells its dialect by the keys that the other does not write.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import NO_LINE_FEED, JobDataError, ReadReport
from laggard_aggregator.jobs.records.sources.jsonl import bounded_lines
from laggard_aggregator.jobs.records.sources.values import cluster_name, identifier, integer, seconds

_ID: Final = re.compile(
    r"(?P<number>\d{1,15})(?:(?:\[(?P<task>\d{1,9})\])|-(?P<old>\d{1,9}))?(?:\..*)?", re.ASCII
)
_ARRAY: Final = re.compile(r"\d{1,15}\[\](?:\..*)?", re.ASCII)
"""A whole array, whose tasks have records of their own."""
_KEY: Final = re.compile(r"(?:^| )([A-Za-z_][A-Za-z0-9_.\-]*)=")
_VNODE: Final = re.compile(r"\[\d{1,9}\]$", re.ASCII)
_CHUNK: Final = re.compile(r"([^+/:()]+)(?:[/:][^+]*)?")
_EXCLUSIVE: Final = ("excl", "exclhost")
_OF_PROFESSIONAL: Final = (
    *("exec_vnode", "run_count", "project", "Resource_List.select", "Resource_List.place"),
    *("resources_used.ncpus", "resources_used.cpupercent"),
)
_OF_TORQUE: Final = (
    *("owner", "Resource_List.neednodes", "total_execution_slots", "unique_node_count"),
    "resources_used.energy_used",
)
_RETRIED: Final = dict.fromkeys((-3, -5, -6), "REQUEUED")
"""Statuses that both dialects have: the start failed, or the node went down, and the job is run again."""
_PROFESSIONAL_STATES: Final = {
    **_RETRIED,
    **dict.fromkeys((-11, -12, -14, -15, -16, -18, -20), "REQUEUED"),
    **dict.fromkeys((-17, -19), "CANCELLED"),
    **dict.fromkeys((-26, -27), "OUT_OF_MEMORY"),
    **dict.fromkeys((-28, -29), "TIMEOUT"),
}
"""pbs_job.h of OpenPBS: rerun, killed by a hook, beyond the limit of memory, of CPU or wall time."""
_TORQUE_STATES: Final = {
    **_RETRIED,
    **dict.fromkeys((-13, -14), "REQUEUED"),
    -10: "OUT_OF_MEMORY",
    **dict.fromkeys((-11, -12), "TIMEOUT"),
}
"""Torque's Administrator Guide, job exit status."""
_SLOTS: Final = re.compile(r"(?P<low>\d{1,9})(?:-(?P<high>\d{1,9})|\*(?P<times>\d{1,9}))?", re.ASCII)
_MAX_SLOTS: Final = 1 << 31


def pbs_records(
    file: BinaryIO, cluster: str, _times: LocalTimes, report: ReadReport
) -> Iterator[Mapping[str, Any]]:
    """Yields a record for each S, E and R; broken lines are counted and named."""
    for number, raw in enumerate(bounded_lines(file), 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not raw.endswith(b"\n"):
            report.leave_out(f"line {number}", NO_LINE_FEED, line)
            continue
        try:
            record = _record(line, cluster)
        except JobDataError as exc:
            report.leave_out(f"line {number}", str(exc), line)
            continue
        if record is not None:
            yield record


def _record(line: str, cluster: str) -> dict[str, Any] | None:
    """The record of a line; None for a line of another kind. Raises JobDataError."""
    if not line.strip():
        return None
    cells = line.split(";", 3)
    if len(cells) != 4:
        raise JobDataError("expected time;type;id;text")
    _, kind, name, fields = cells
    if kind not in ("S", "E", "R"):
        return None
    if _ARRAY.fullmatch(name):
        return None
    match = _ID.fullmatch(name)
    if match is None:
        raise JobDataError("no id of a job")
    values = _values(fields)
    start = seconds(values.get("start"))
    submit = seconds(values.get("ctime") or values.get("qtime"))
    if start is None or submit is None:
        raise JobDataError("no ctime, or no start")
    task = match["task"] or match["old"]
    array = int(match["number"]) if task else None
    status = integer(values.get("Exit_status"))
    return {
        "cluster": cluster_name(None, cluster),
        "raw_id": int(match["number"]),
        "submit": int(submit),
        "sluid": identifier(f"{name}@{int(start)}"),
        "job": name.partition(".")[0],
        "array_job": array,
        "array_task": int(task) if task else None,
        "user": values.get("user", ""),
        "account": values.get("account", "").strip('"') or values.get("project", ""),
        "name": values.get("jobname", ""),
        "partition": values.get("queue", ""),
        "state": _state(kind, status, values),
        "exit_code": status,
        "eligible": seconds(values.get("etime")),
        "start": start,
        "end": seconds(values.get("end")) if kind != "S" else None,
        "exclusive": True if values.get("Resource_List.place", "").rpartition(":")[2] in _EXCLUSIVE else None,
        "cpus": _cpus(values),
        "node_list": ",".join(_nodes(values.get("exec_host") or values.get("exec_vnode") or "")),
        "source": "pbs",
    }


def _values(text: str) -> dict[str, str]:
    """Values by key; a value lasts until the next ` key=`, as names may hold spaces."""
    marks = list(_KEY.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    values: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        values.setdefault(mark[1], text[mark.end() : end].strip())
    return values


def _state(kind: str, status: int | None, values: Mapping[str, str]) -> str:
    """PBS's exit statuses below 0 are its own, of one dialect or of both; from 256 on signals."""
    if kind == "S":
        return "RUNNING"
    if kind == "R":
        return "REQUEUED"
    if status is not None and status >= 256:
        return "CANCELLED"
    if status == 0:
        return "COMPLETED"
    states = _RETRIED
    if not values.keys().isdisjoint(_OF_PROFESSIONAL):
        states = _PROFESSIONAL_STATES
    elif not values.keys().isdisjoint(_OF_TORQUE) or "-" in _slots_of(values):
        states = _TORQUE_STATES
    return states.get(status, "FAILED") if status is not None else "FAILED"


def _slots_of(values: Mapping[str, str]) -> str:
    """Slots of the first host: `0-3` of Torque's `n1-a/0-3+n2/0`."""
    return values.get("exec_host", "").partition("+")[0].partition("/")[2]


def _cpus(values: Mapping[str, str]) -> int | None:
    """CPUs of a job by the first key that tells them; None where none does."""
    for name in ("resources_used.ncpus", "Resource_List.ncpus", "total_execution_slots"):
        count = integer(values.get(name))
        if count is not None and count > 0:
            return count
    return _vnode_cpus(values.get("exec_vnode", "")) or _slots(values.get("exec_host", ""))


def _vnode_cpus(text: str) -> int | None:
    """CPUs of `(n1:ncpus=4:mem=2gb)+(n2:ncpus=4)`; None where it has none."""
    counts = [int(count) for count in re.findall(r":ncpus=(\d{1,9})", text, re.ASCII)]
    return sum(counts) or None


def _slots(hosts: str) -> int | None:
    """Slots of `n1/0+n1/1`, of Torque's `n1/0-3,8+n2/0`, or of PBS Professional's `n1/0*4+n2/1`.

    None for hosts without slots, and for text that is none.
    """
    total = 0
    for chunk in hosts.split("+"):
        _, slash, slots = chunk.partition("/")
        for part in slots.split(","):
            match = _SLOTS.fullmatch(part)
            if not slash or match is None:
                return None
            low, high, times = int(match["low"]), int(match["high"] or match["low"]), match["times"]
            total += int(times) if times else high - low + 1
            if high < low or total > _MAX_SLOTS:
                return None
    return total or None


def _nodes(hosts: str) -> dict[str, None]:
    """Hosts of `node1/0*4+node2/1`, or of vnodes `(node1:ncpus=4)+(node2:ncpus=4)`, each once.

    A host with several vnodes has them as `node1[0]`.
    """
    nodes: dict[str, None] = {}
    for chunk in re.split(r"[+()]+", hosts):
        if chunk:
            match = _CHUNK.fullmatch(chunk)
            if match is None:
                raise JobDataError("no list of hosts")
            nodes[_VNODE.sub("", match[1])] = None
    return nodes
