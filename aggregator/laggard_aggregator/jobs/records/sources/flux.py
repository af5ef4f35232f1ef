"""JSON of Flux: `flux jobs -a --json`, one such object a line, or of one job (`flux jobs --json ID`)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import JobDataError, ReadReport
from laggard_aggregator.jobs.records.sources.json_stream import JsonStream
from laggard_aggregator.jobs.records.sources.values import (
    at,
    cluster_name,
    identifier,
    integer,
    node_list,
    seconds,
    state,
    text,
)

_WORDS: Final = {
    **dict.fromkeys(("DEPEND", "PRIORITY", "SCHED", "NEW"), "PENDING"),
    "RUN": "RUNNING",
    "CLEANUP": "COMPLETING",
    "CANCELED": "CANCELLED",
    "INACTIVE": "FAILED",
}
_F58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_F58_ID: Final = re.compile(rf"[f\u0192]([{_F58}]{{1,12}})")
_MOST: Final = (1 << 63) - 1


def flux_records(
    file: BinaryIO, cluster: str, _times: LocalTimes, report: ReadReport
) -> Iterator[Mapping[str, Any]]:
    """Yields a record for each job; broken ones are counted. Raises InputError for text that is no JSON."""
    stream = JsonStream(file)
    for count, job in enumerate(stream.elements("jobs", alone="t_submit"), 1):
        try:
            yield _record(job, cluster)
        except JobDataError as exc:
            report.leave_out(f"element {count} of jobs", str(exc), f"job {str(at(job, 'id'))[:40]}")
    for reason in stream.failures:
        report.doubts[f"the query failed in part: {reason}"] += 1


def _record(job: Any, cluster: str) -> dict[str, Any]:
    submit, raw = seconds(at(job, "t_submit")), _number(at(job, "id"))
    if submit is None:
        raise JobDataError("no time of submission")
    result = text(at(job, "result")) or text(at(job, "state"))
    end = seconds(at(job, "t_cleanup")) or seconds(at(job, "t_inactive"))
    return {
        "cluster": cluster_name(None, cluster),
        "raw_id": raw,
        "submit": int(submit),
        "sluid": identifier(f"flux-{raw}"),
        "job": str(at(job, "id")),
        "user": text(at(job, "username")),
        "uid": integer(at(job, "userid")),
        "account": text(at(job, "bank")) or text(at(job, "project")),
        "name": text(at(job, "name")),
        "partition": text(at(job, "queue")),
        "state": state(result, _WORDS),
        "exit_code": integer(at(job, "returncode")),
        "eligible": seconds(at(job, "t_depend")),
        "start": seconds(at(job, "t_run")),
        "end": end,
        "node_count": integer(at(job, "nnodes")),
        "tasks": integer(at(job, "ntasks")),
        "cpus": integer(at(job, "ncores")),
        "node_list": node_list(at(job, "nodelist")),
        "source": "flux",
    }


def _number(value: Any) -> int:
    """Flux's 63 bits of an id, which it writes as a number or in base 58 after an f."""
    match = _F58_ID.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        decoded = integer(value)
    else:
        decoded = 0
        for char in match[1]:
            decoded = decoded * 58 + _F58.index(char)
    if decoded is None or not 0 <= decoded <= _MOST:
        raise JobDataError(f"no id of a job: {str(value)[:40]!r}")
    return decoded
