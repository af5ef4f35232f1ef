"""PBS accounting logs (OpenPBS, PBS Professional, Torque): `time;type;id;key=value key=value ...`.

Records S (start), E (end) and R (rerun) name a run by its id and its start; a rerun has a start of its own.
Others are skipped: jobs that never started have no nodes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import JobDataError, ReadReport
from laggard_aggregator.jobs.records.sources.jsonl import bounded_lines
from laggard_aggregator.jobs.records.sources.values import cluster_name, identifier, integer, seconds

_ID: Final = re.compile(
    r"(?P<number>\d{1,15})(?:(?:\[(?P<task>\d{1,9})\])|-(?P<old>\d{1,9}))?(?:\..*)?", re.ASCII
)
_KEY: Final = re.compile(r"(?:^| )([A-Za-z_][A-Za-z0-9_.]*)=")
_CHUNK: Final = re.compile(r"([^+/:()]+)(?:[/:][^+]*)?")
_EXCLUSIVE: Final = ("excl", "exclhost")


def pbs_records(
    file: BinaryIO, cluster: str, _times: LocalTimes, report: ReadReport
) -> Iterator[Mapping[str, Any]]:
    """Yields a record for each S, E and R; broken lines are counted and named."""
    for number, raw in enumerate(bounded_lines(file), 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        try:
            record = _record(line, cluster)
        except JobDataError as exc:
            report.leave_out(number, str(exc), line)
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
    _, kind, name, told = cells
    if kind not in ("S", "E", "R"):
        return None
    match = _ID.fullmatch(name)
    if match is None:
        raise JobDataError("no id of a job")
    values = _values(told)
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
        "state": _state(kind, status),
        "exit_code": status,
        "eligible": seconds(values.get("etime")),
        "start": start,
        "end": seconds(values.get("end")) if kind != "S" else None,
        "exclusive": True if values.get("Resource_List.place", "").rpartition(":")[2] in _EXCLUSIVE else None,
        "cpus": integer(values.get("resources_used.ncpus") or values.get("Resource_List.ncpus")),
        "node_list": ",".join(_nodes(values.get("exec_host") or values.get("exec_vnode") or "")),
        "source": "pbs",
    }


def _values(text: str) -> dict[str, str]:
    """Values by key; a value lasts until the next ` key=`, as names may hold spaces."""
    marks = list(_KEY.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        found.setdefault(mark[1], text[mark.end() : end])
    return found


def _state(kind: str, status: int | None) -> str:
    """PBS's exit statuses below 0 are its own, from 256 on signals; -11 is a job that it ran again."""
    if kind == "S":
        return "RUNNING"
    if kind == "R" or status == -11:
        return "REQUEUED"
    if status == -29:
        return "TIMEOUT"
    if status is not None and status >= 256:
        return "CANCELLED"
    return "COMPLETED" if status == 0 else "FAILED"


def _nodes(hosts: str) -> dict[str, None]:
    """Hosts of `node1/0*4+node2/1`, or of vnodes `(node1:ncpus=4)+(node2:ncpus=4)`, each once."""
    found: dict[str, None] = {}
    for chunk in re.split(r"[+()]+", hosts):
        if chunk:
            match = _CHUNK.fullmatch(chunk)
            if match is None:
                raise JobDataError("no list of hosts")
            found[match[1]] = None
    return found
