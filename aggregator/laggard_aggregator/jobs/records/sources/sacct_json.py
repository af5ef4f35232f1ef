"""JSON of `sacct --json` and slurmrestd (`/slurmdb/jobs`, `/slurm/jobs`), data parsers 0.0.38 to 0.0.45."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import JobDataError, ReadReport
from laggard_aggregator.jobs.records.settle import STEPS
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

_ANY_CLUSTER: Final = "any"
_STEP_NAME: Final = re.compile(r"[0-9A-Za-z_+]{1,64}", re.ASCII)
_NO_NUMBER: Final = 0xFFFFFFFE
_SPECIAL_STEPS: Final = {0xFFFFFFFA: "interactive", 0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern"}
"""slurm.h, SLURM_INTERACTIVE_STEP and others."""


def json_records(
    file: BinaryIO, cluster: str, _times: LocalTimes, report: ReadReport
) -> Iterator[Mapping[str, Any]]:
    """Yields a record for each job; broken ones are counted. Raises InputError for text that is no JSON."""
    for record, _ in _records(file, cluster, report):
        yield record


def json_steps(file: BinaryIO, report: ReadReport) -> Iterator[dict[str, Any]]:
    """Yields a row of STEPS for each job, each followed by those of its steps; as `json_records`."""
    for record, job in _records(file, _ANY_CLUSTER, report):
        raw = record["raw_id"]
        yield {**{name: record[name] for name in STEPS.names if name != "raw_id"}, "raw_id": str(raw)}
        steps = job.get("steps")
        for count, step in enumerate(steps if isinstance(steps, list) else (), 1):
            try:
                yield _step(step, raw)
            except JobDataError as exc:
                report.leave_out(
                    f"job {raw}, element {count} of steps", str(exc), str(at(step, "step", "name"))
                )


def _records(
    file: BinaryIO, cluster: str, report: ReadReport
) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Yields the record of each job, and the job."""
    stream = JsonStream(file)
    for count, job in enumerate(stream.elements("jobs"), 1):
        try:
            record = (
                _of_controller(job, cluster) if "submit_time" in _object(job) else _of_database(job, cluster)
            )
        except JobDataError as exc:
            report.leave_out(f"element {count} of jobs", str(exc), f"job {str(at(job, 'job_id'))[:40]}")
            continue
        yield record, job
    for reason in stream.failures:
        report.doubts[f"the query failed in part: {reason}"] += 1


def _object(job: Any) -> Mapping[str, Any]:
    if not isinstance(job, Mapping):
        raise JobDataError("no object")
    return job


def _of_database(job: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """A record of slurmdbd."""
    array, task = integer(at(job, "array", "job_id")), integer(at(job, "array", "task_id"))
    het, offset = integer(at(job, "het", "job_id")), integer(at(job, "het", "job_offset"))
    return {
        **_identity(job, cluster, seconds(at(job, "time", "submission"))),
        **_shown(integer(job.get("job_id")), array, task, het, offset),
        "user": text(job.get("user")) or text(at(job, "association", "user")),
        "account": text(job.get("account")),
        "name": text(job.get("name")),
        "partition": text(job.get("partition")),
        "state": state(at(job, "state", "current")),
        "exit_code": _exit_code(job.get("exit_code")),
        **{name: seconds(at(job, "time", name)) for name in ("eligible", "start", "end")},
        "node_count": integer(job.get("allocation_nodes")),
        "cpus": _cpus(job),
        "node_list": node_list(job.get("nodes")),
    }


def _of_controller(job: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """A record of slurmctld, whose pending jobs have forecasts; its start count becomes `restarts`.

    That count stays out of the key, as the database does not have it: a job between two runs loses its times.
    """
    array, task = integer(job.get("array_job_id")), integer(job.get("array_task_id"))
    het, offset = integer(job.get("het_job_id")), integer(job.get("het_job_offset"))
    job_state = state(job.get("job_state"))
    restarted = job_state == "COMPLETING" and bool(integer(job.get("restart_cnt")))
    return {
        **_identity(job, cluster, seconds(job.get("submit_time"))),
        **_shown(integer(job.get("job_id")), array, task, het, offset),
        "user": text(job.get("user_name")),
        "uid": integer(job.get("user_id")),
        "account": text(job.get("account")),
        "name": text(job.get("name")),
        "partition": text(job.get("partition")),
        "state": "PENDING" if restarted else job_state,
        "exit_code": _exit_code(job.get("exit_code")) if "COMPLET" in job_state else None,
        "eligible": seconds(job.get("eligible_time")),
        "start": seconds(job.get("start_time")),
        "end": seconds(job.get("end_time")),
        "node_count": integer(job.get("node_count")),
        "tasks": integer(job.get("tasks")),
        "cpus": integer(job.get("cpus")),
        "exclusive": True if "exclusive" in _words(job) else None,
        "node_list": "" if restarted else node_list(job.get("nodes")),
    }


def _identity(job: Mapping[str, Any], cluster: str, submit: float | None) -> dict[str, Any]:
    raw = integer(job.get("job_id"))
    if raw is None or raw <= 0 or submit is None:
        raise JobDataError("no job_id, or no time of submission")
    sluid = text(job.get("sluid"))
    return {
        "cluster": cluster_name(job.get("cluster"), cluster),
        "raw_id": raw,
        "submit": int(submit),
        "sluid": identifier(sluid) if sluid else "",
        "source": "sacct_json",
    }


def _step(step: Any, job: int) -> dict[str, Any]:
    """A step of a job."""
    name = _step_name(at(step, "step", "id"))
    component = integer(at(step, "step", "het", "component"))
    nodes = node_list(at(step, "nodes", "range")) or node_list(at(step, "nodes", "list"))
    return {
        "raw_id": f"{job}.{name}{'' if component in (None, _NO_NUMBER) else f'+{component}'}",
        "name": text(at(step, "step", "name")),
        "state": state(at(step, "state")),
        "node_list": nodes,
        "node_count": integer(at(step, "nodes", "count")),
        **{name: seconds(at(step, "time", name)) for name in ("start", "end")},
    }


def _step_name(step: Any) -> str:
    """The part of a step's id behind the dot: of `0`, `"batch"`, `"4711.0"`, or an object with one."""
    if isinstance(step, Mapping) and "step_id" in step:
        step = step["step_id"]
    if isinstance(step, str) and not step.isdecimal():
        name = step.rpartition(".")[2]
        if _STEP_NAME.fullmatch(name) is None:
            raise JobDataError(f"no id of a step: {step[:40]!r}")
        return name
    number = integer(step)
    if number is None or not 0 <= number < 1 << 32:
        raise JobDataError(f"no id of a step: {str(step)[:40]!r}")
    return _SPECIAL_STEPS.get(number, str(number))


def _shown(
    raw: int | None, array: int | None, task: int | None, het: int | None, offset: int | None
) -> dict[str, Any]:
    """The id as Slurm shows it, and its parts."""
    if array:
        shown = f"{array}_{task}" if task is not None else str(array)
        return {"job": shown, "array_job": array, "array_task": task}
    if het:
        shown = str(raw) if offset is None else f"{het}+{offset}"
        return {"job": shown, "het_job": het, "het_offset": offset}
    return {"job": str(raw)}


def _exit_code(value: Any) -> int | None:
    """Exit status; 128 and the signal where one ended the job. A plain number is a status of wait(2)."""
    if isinstance(value, int):
        return value >> 8 if not value & 127 else 128 + (value & 127)
    signal = integer(at(value, "signal", "id")) if isinstance(at(value, "signal"), Mapping) else None
    signal = signal or integer(at(value, "signal", "signal_id"))
    return 128 + signal if signal else integer(at(value, "return_code"))


def _cpus(job: Mapping[str, Any]) -> int | None:
    """Allocated CPUs."""
    allocated = at(job, "tres", "allocated")
    for resource in allocated if isinstance(allocated, list) else ():
        if text(at(resource, "type")) == "cpu":
            return integer(at(resource, "count"))
    return integer(at(job, "required", "CPUs"))


def _words(job: Mapping[str, Any]) -> set[str]:
    """Words on the sharing of nodes: `shared` is text or a list."""
    value = job.get("shared")
    return {word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)}
