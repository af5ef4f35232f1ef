"""A trace log from an agent that is killed, through mosquitto, to the records and the modes of its job."""

import shutil
import signal
import sys
from pathlib import Path

import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.traces.job_traces import JobTraces
from laggard_common.wire.trace_records import Folded
from tests.support import shipped_brokers as brokers
from tests.support.builders.job_tables import job_row, node_rows, write_rows
from tests.support.ports import free_port, is_listening
from tests.support.processes import end, get_json, running
from tests.support.shipped_brokers import Authority
from tests.support.wait import wait_until

PYTHON = [sys.executable, "-P", "-m"]
NODE = "cn-1"
STARTED = 1_763_600_000
"""The job's start; its records have times after it."""
ADMIN = Principal("", Role.ADMIN)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
    pytest.mark.skipif(
        shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") is None, reason="needs mosquitto"
    ),
]


def mqtt_table(folder: Path, port: int, name: str) -> str:
    issued = folder / "ca" / "issued" / name
    return (
        f'[mqtt]\nhost = "localhost"\nport = {port}\nca_file = "{folder}/ca/ca.pem"\n'
        f'cert_file = "{issued}.pem"\nkey_file = "{issued}.key"\n'
    )


def configured(folder: Path, port: int, http: int) -> tuple[list[str], list[str]]:
    """The commands of the aggregator and of an agent that follows logs."""
    (folder / "aggregator.toml").write_text(
        f'site = "site"\n{mqtt_table(folder, port, "laggard-aggregator")}'
        f'[http]\nlisten = "127.0.0.1:{http}"\n[archive]\ndirectory = "{folder}/archive"\n'
        f'[state]\ndirectory = "{folder}/state"\n'
    )
    (folder / "agent.toml").write_text(
        f'node = "{NODE}"\nrole = "compute"\ncollectors = ["host"]\nbatch_samples = 2\n'
        f'{mqtt_table(folder, port, NODE)}[spool]\ndirectory = "{folder}/spool"\n'
        f'[traces]\nfiles = ["{folder}/logs/{{job}}/*.trace"]\nsend_seconds = 1\n'
    )
    return (
        [*PYTHON, "laggard_aggregator.cli.daemon", "--config", str(folder / "aggregator.toml")],
        [*PYTHON, "laggard_agent", "--config", str(folder / "agent.toml")],
    )


def lines(first: int, last: int) -> str:
    """Writes of eight processes to one file, none behind the other, and one to a file of its own."""
    shared = (
        f"{STARTED + 5}.{at:09d} {NODE} write {100 + at % 8}:3 {at * 8192} 4096 /scratch/shared\n"
        for at in range(first, last)
    )
    return "".join(shared) + f"{STARTED + 6}.5 {NODE} write 100:4 {first * 4096} 4096 /scratch/log\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def archived(archive: Path) -> int:
    """Distinct records in the archive."""
    if not any(archive.glob("kind=events/source=traces/*/*/*.parquet")):
        return 0
    table = ArchiveReader(archive).table("events", "traces", ["descriptor", "offset", "path"])
    return len({tuple(row.values()) for row in table.to_pylist()})


def test_each_record_of_a_job_is_archived_once_over_a_kill_of_the_agent(tmp_path: Path) -> None:
    authority, port, http = Authority(tmp_path / "ca"), free_port(), free_port()
    authority.begin("localhost", [NODE])
    aggregator, agent = configured(tmp_path, port, http)
    log = tmp_path / "logs" / "77" / "app.trace"
    log.parent.mkdir(parents=True)
    broker = brokers.mosquitto(tmp_path, authority, "127.0.0.1", port, site="site")
    with running(broker, tmp_path / "broker.log"):
        wait_until(lambda: is_listening(port), "the broker to listen")
        with running(aggregator, tmp_path / "aggregator.log") as judge:
            wait_until(lambda: get_json(f"http://127.0.0.1:{http}/readyz"), "the aggregator to be ready")
            with running(agent, tmp_path / "agent.log") as node:
                append(log, lines(0, 9000)[:-10])
                wait_until((tmp_path / "spool" / "traces.json").exists, "the first log")
                node.send_signal(signal.SIGKILL)
                node.wait()
            append(log, lines(0, 9000)[-10:] + lines(9000, 12_000))
            with running(agent, tmp_path / "agent.log") as node:
                wait_until(lambda: archived(tmp_path / "archive") == 12_002, "the records so far")
                log.rename(log.with_suffix(".old"))
                append(log, lines(12_000, 12_500))
                wait_until(lambda: archived(tmp_path / "archive") == 12_503, "those of the new log")
                assert end(node) == 0
            assert end(judge) == 0
    found = of_job(tmp_path / "archive")
    assert len(found) == len({(each.descriptor, each.offset) for each in found}) == 12_503


def of_job(archive: Path) -> list[Folded]:
    """The records of job 77, whose volume is on one shared file."""
    job = job_row(77, submit=STARTED, end=float(STARTED + 20 * 365 * 86_400), node_count=1)
    write_rows(archive, "jobs", [job], STARTED)
    write_rows(archive, "job_nodes", node_rows(job, [NODE]), STARTED)
    index = JobIndex(archive)
    index.refresh()
    queries = JobQueries(index)
    try:
        row = queries.job(ADMIN, job["job_key"])
        assert row is not None
        traces = JobTraces(archive, queries)
        assert traces.modes(row)["write"].mode == "N-1"
        return traces.records(row)
    finally:
        queries.close()
