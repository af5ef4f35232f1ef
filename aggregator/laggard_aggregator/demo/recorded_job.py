"""The recorded run as a job of the demo's archive: the fio process that made the load, just ended.

Volumes are those of the LUNs' recorded counters. There is one run, so none that it could be judged by.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import numpy as np

from laggard_aggregator.demo.recording import Recording
from laggard_aggregator.demo.replay import lun_counters
from laggard_aggregator.demo.site import SITE, Site
from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.accounts import SECOND_NS, JobAccount, JoinedJob
from laggard_aggregator.jobs.join.active_times import Active
from laggard_aggregator.jobs.join.join_pass import write_results
from laggard_aggregator.jobs.join.volumes import CLIENT, SERVER
from laggard_aggregator.jobs.records.settle import records, settled
from laggard_aggregator.jobs.records.store import JobStore
from laggard_aggregator.jobs.verdict.findings_pass import FindingsPass

CLUSTER: Final = "recording"
MACHINE: Final = "testbed"
"""The virtual machine that ran fio and had the LUNs."""
SECTOR_BYTES: Final = 512.0
"""Unit of /proc/diskstats, independent of the device."""
_READS, _READ_SECTORS, _READ_MS, _WRITES, _WRITTEN_SECTORS, _WRITE_MS = 0, 2, 3, 4, 6, 7


def write_recorded_job(recording: Recording, site: Site, ended_at: float) -> None:
    """Writes the job with its results and verdict, and the index. Raises ArchiveError.

    `ended_at`: epoch seconds, to which the job's times are moved: lists of recent jobs have it.
    """
    recorded_on = datetime.fromtimestamp(recording.samples[-1].time, UTC).date().isoformat()
    moved_by = float(round(ended_at - recording.samples[-1].time))
    start, end = recording.start + moved_by, recording.samples[-1].time + moved_by
    now_ns = round(end * SECOND_NS)
    date = datetime.fromtimestamp(end, UTC).date().isoformat()
    record = {
        "cluster": CLUSTER,
        "raw_id": 1,
        "submit": int(start),
        "job": "1",
        "user": "root",
        "application": "fio",
        "name": f"fio on {len(recording.luns)} LUNs, recorded on {recorded_on}; the other pages replay it",
        "state": "COMPLETED",
        "start": start,
        "end": end,
        "node_count": 1,
        "node_list": MACHINE,
        "source": "jsonl",
    }
    job = settled(records([record]))
    store = JobStore(site.archive, SITE)
    store.add(job)
    store.flush(now_ns)
    key = job["job_key"][0].as_py()
    account = recorded_account(recording, key, {lun: site.nodes[lun] for lun in recording.luns}, moved_by)
    write_results(site.archive, SITE, date, [account], now_ns)
    FindingsPass(site.archive, SITE, JobIndex(site.archive)).run(now_ns)


def recorded_account(
    recording: Recording, key: str, nodes: Mapping[str, str], moved_by: float = 0.0
) -> JobAccount:
    """The job's sums. `nodes`: of each LUN, the node that has it in the demo; `moved_by`: of its times, s."""
    at_ns = np.array([round((sample.time + moved_by) * SECOND_NS) for sample in recording.samples])
    start_ns, end_ns = int(at_ns[0]), int(at_ns[-1])
    account = JobAccount(JoinedJob(key, 1, start_ns, end_ns, ((MACHINE, start_ns, end_ns),)))
    read = [lun_counters(sample) for sample in recording.samples]
    for lun, node in nodes.items():
        rises = np.diff(np.array([counters[lun] for counters in read]), axis=0).astype(np.float64)
        moved = _moved(rises)
        account.note_intervals(SERVER, at_ns[:-1], at_ns[1:])
        account.add(SERVER, Active.throughout(at_ns[:-1], at_ns[1:]), moved)
        times = rises[:, [_READS, _WRITES, _READ_MS, _WRITE_MS]].sum(axis=0)
        sums = account.components[SERVER, node, lun, False]
        sums.sums[: 3 + times.size] = [*moved.sum(axis=1), *times]
        sums.time_scale = 1e-3
    # The machine has no counters of a client; those of its LUNs cover all of the job's time.
    account.components[CLIENT, MACHINE, "", False].sums[-1] = end_ns - start_ns
    return account


def _moved(rises: FloatArray) -> FloatArray:
    """Bytes read, written and metadata operations (3, N) of rises (N, columns)."""
    return np.stack(
        [
            rises[:, _READ_SECTORS] * SECTOR_BYTES,
            rises[:, _WRITTEN_SECTORS] * SECTOR_BYTES,
            np.zeros(len(rises)),
        ]
    )
