"""Recordings of two nodes through agents, mosquitto as it is shipped, and an aggregator that is killed."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.archive.reader import ArchiveReader
from tests.support import shipped_brokers as brokers
from tests.support.builders.layer_traces import TraceBuilder
from tests.support.ports import free_port, is_listening
from tests.support.processes import end, get_json, get_text, run_command, running
from tests.support.shipped_brokers import Authority
from tests.support.wait import wait_until

PYTHON = [sys.executable, "-P", "-m"]
LAGGARD = [*PYTHON, "laggard_aggregator.cli.main"]
NODES = ("cn-1", "cn-2")
REQUESTS = 30_000
"""Of each layer: several documents a node."""

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


def agent(folder: Path, port: int, node: str) -> list[str]:
    """The command of an agent with an outbox."""
    (folder / f"outbox-{node}").mkdir()
    (folder / f"{node}.toml").write_text(
        f'node = "{node}"\nrole = "compute"\ncollectors = ["host"]\nbatch_samples = 2\n'
        f'{mqtt_table(folder, port, node)}[spool]\ndirectory = "{folder}/spool-{node}"\n'
        f'[outbox]\ndirectory = "{folder}/outbox-{node}"\n'
    )
    return [*PYTHON, "laggard_agent", "--config", str(folder / f"{node}.toml")]


def recording(folder: Path) -> Path:
    """An application whose requests are serialised above the device."""
    folder.mkdir()
    built = TraceBuilder()
    for at in range(REQUESTS):
        begin = at // 8 * 800.0
        built.request("application", at, begin, begin + 100.0 * (at % 8 + 1), offset=at * 65536)
        built.request("device", at, at * 100.0, at * 100.0 + 99.0, offset=at * 65536)
    built.write(folder / "events.csv")
    return folder


def received(archive: Path) -> list[dict[str, Any]]:
    if not any(archive.glob("kind=events/*/*/*/*.parquet")):
        return []
    done = run_command([*LAGGARD, "layers", "received", "--archive", str(archive), "--json"])
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_request_arrives_once_over_a_kill_of_the_aggregator(tmp_path: Path) -> None:
    authority, port, http = Authority(tmp_path / "ca"), free_port(), free_port()
    authority.begin("localhost", list(NODES))
    archive = tmp_path / "archive"
    (tmp_path / "aggregator.toml").write_text(
        f'site = "site"\n{mqtt_table(tmp_path, port, "laggard-aggregator")}'
        f'[http]\nlisten = "127.0.0.1:{http}"\n[archive]\ndirectory = "{archive}"\n'
        f'[state]\ndirectory = "{tmp_path}/state"\n'
    )
    made = recording(tmp_path / "run")
    aggregator = [*PYTHON, "laggard_aggregator.cli.daemon", "--config", str(tmp_path / "aggregator.toml")]
    log = tmp_path / "aggregator.log"
    broker = brokers.mosquitto(tmp_path, authority, "127.0.0.1", port, site="site")
    with running(broker, tmp_path / "broker.log"):
        wait_until(lambda: is_listening(port), "the broker to listen")
        agents = [agent(tmp_path, port, node) for node in NODES]
        with (
            running(agents[0], tmp_path / "cn-1.log") as first,
            running(agents[1], tmp_path / "cn-2.log") as second,
        ):
            with running(aggregator, log) as judge:
                wait_until(lambda: get_json(f"http://127.0.0.1:{http}/readyz"), "the aggregator to be ready")
                for node in NODES:
                    outbox = str(tmp_path / f"outbox-{node}")
                    run_command([*LAGGARD, "layers", "send", str(made), "--outbox", outbox])
                wait_until(lambda: len(list(tmp_path.glob("state/*.journal"))) > 0, "a journal")
                wait_until(lambda: documents(http) >= 1, "the first document")
                judge.kill()
                judge.wait()
            with running(aggregator, log) as judge:
                wait_until(lambda: get_json(f"http://127.0.0.1:{http}/readyz"), "the aggregator again")
                wait_until(
                    lambda: [each["sent"] for each in received(archive)] == [2 * REQUESTS] * 2,
                    "both reports",
                )
                assert end(judge) == 0
            assert [end(first), end(second)] == [0, 0]
    found = received(archive)
    assert [(each["node"], each["requests"]) for each in found] == [(node, 2 * REQUESTS) for node in NODES]
    assert all(each["findings"] for each in found)
    assert ArchiveReader(archive).table("events", "layers", ["request"]).num_rows == 4 * REQUESTS
    assert [list((tmp_path / f"outbox-{node}").iterdir()) for node in NODES] == [[], []]


def documents(http: int) -> float:
    """The aggregator's count of accepted documents."""
    lines = get_text(f"http://127.0.0.1:{http}/metrics").splitlines()
    return next(
        (float(line.split()[-1]) for line in lines if line.startswith("laggard_documents_total")), 0.0
    )
