"""The product as the goldens reach it: commands, daemons, the wire. No other file here imports it."""

import contextlib
import io
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from laggard_agent.app import App as AgentApp
from laggard_agent.cli import main as agent_main
from laggard_agent.collectors.interface import Roots
from laggard_agent.settings import AgentSettings
from laggard_agent.spool.backlog import Coalescer
from laggard_agent.spool.segments import SpooledBatch
from laggard_aggregator.app import App as AggregatorApp
from laggard_aggregator.cli.daemon import main as aggregator_main
from laggard_aggregator.cli.main import main as laggard_main
from laggard_aggregator.jobs.access.principals import NOBODY, READ_PROJECT, Principal, Role
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.join_pass import JoinPass, JoinSettings
from laggard_aggregator.jobs.join.path_pass import PathPass
from laggard_aggregator.jobs.rollups.rollup_pass import RollupPass
from laggard_aggregator.jobs.traces.trace_pass import TracePass
from laggard_aggregator.jobs.verdict.findings_pass import FindingsPass
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.web.app import make_app
from laggard_common import wire
from laggard_common.clock import Clock
from laggard_common.config import load
from laggard_common.wire import codec, topics, trace_codec, trace_records
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType, Schema
from tests import naive_wire
from tests.naive_coalesce import apart
from tests.support.broker import Broker, Published
from tests.support.builders import live_status

__all__ = [
    "HAS_DARSHAN",
    "PRINCIPALS",
    "AgentApp",
    "AgentSettings",
    "AggregatorApp",
    "AggregatorSettings",
    "Broker",
    "Clock",
    "Component",
    "Field",
    "FieldKind",
    "FieldType",
    "Published",
    "Roots",
    "Schema",
    "agent",
    "aggregator",
    "apart",
    "coalesced",
    "codec",
    "command",
    "index_rows",
    "job_site",
    "laggard",
    "refresh_index",
    "rows",
    "run_passes",
    "topics",
    "trace_codec",
    "trace_records",
    "wire",
]

COMMANDS = {"laggard": laggard_main, "laggard-agent": agent_main, "laggard-aggregator": aggregator_main}

HAS_DARSHAN = find_spec("darshan") is not None and find_spec("duckdb") is not None
PRINCIPALS = {
    "admin": Principal("root", Role.ADMIN),
    "user": Principal("alice", Role.USER),
    "other user": Principal("otto", Role.USER),
    "manager": Principal("mona", Role.MANAGER, frozenset({"physics"})),
    "api": Principal("grafana", Role.API, scopes=frozenset({READ_PROJECT + "physics"})),
    "nobody": NOBODY,
}


def command(name: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, run in this process on 80 columns."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),
    ):
        try:
            code = COMMANDS[name](list(arguments))
        except SystemExit as exc:  # argparse ends the program
            code = int(exc.code or 0)
    return code, out.getvalue(), err.getvalue()


def laggard(*arguments: str) -> str:
    """The output of `laggard`, which must succeed."""
    code, out, err = command("laggard", *arguments)
    assert code == 0, err
    return out


def agent(config: Path, procfs: Path, clock: Clock | None = None) -> AgentApp:
    """An agent with the configuration in `config`, on a copied /proc."""
    return AgentApp(load(AgentSettings, config), Roots(procfs, None, None), clock=clock)


def aggregator(config: Path, clock: Clock) -> AggregatorApp:
    """An aggregator with the configuration in `config`."""
    return AggregatorApp(load(AggregatorSettings, config), clock)


def coalesced(envelopes: Sequence[wire.Envelope]) -> list[bytes]:
    """The messages in which an agent sends batches that waited in its spool."""
    joiner = Coalescer()
    messages = [message for e in envelopes for message in joiner.add(SpooledBatch(e))]
    return [wire.encode_envelope(message.envelope) for message in messages + joiner.flush()]


def rows(envelope: wire.Envelope) -> list[list[list[int | None]]]:
    """The values of a batch by tick, component and field, as a slow and obvious decoder reads them."""
    return naive_wire.decode(envelope).values


def job_site(archive: Path, who: str) -> Any:
    """The web application over an archive, for one of PRINCIPALS."""
    site = live_status.site()
    site.now = 1_800_000_000 + 7200.0
    app = make_app(site, archive)

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "principal": PRINCIPALS[who]}, receive, send)

    return call


def refresh_index(archive: Path) -> None:
    """Brings the index of jobs up to date."""
    JobIndex(archive).refresh()


def index_rows(archive: Path) -> dict[str, Any]:
    """Rows of the index by table, sorted; without SQLite's own."""
    with closing(sqlite3.connect(JobIndex(archive).path)) as db:
        tables = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        names = sorted(name for (name,) in db.execute(tables) if "_" not in name)
        return {
            name: sorted(
                ([*row] for row in db.execute(f"select * from {name}")),
                key=repr,
            )
            for name in names
        }


def run_passes(archive: Path, now_ns: int) -> None:
    """One pass of each kind, in the daemon's order, over the sites of the golden archive."""
    served_by = {"n1": "fwd-1"}
    RollupPass(archive).run(now_ns, 30)
    JoinPass(archive, "site", JoinSettings(served_by=served_by)).run(now_ns, 30)
    PathPass(archive, "site", served_by).run(now_ns)
    index = JobIndex(archive)
    index.refresh()
    FindingsPass(archive, "site", index).run(now_ns + 10**9)
    TracePass(archive, "s", index).run(now_ns)
