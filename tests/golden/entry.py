"""The product as the goldens reach it: commands, daemons, the wire. No other file here imports it."""

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
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
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common import wire
from laggard_common.clock import Clock
from laggard_common.config import load
from laggard_common.wire import codec, topics, trace_codec, trace_records
from laggard_common.wire.schema import Component, Field, FieldKind, FieldType, Schema
from tests import naive_wire
from tests.naive_coalesce import apart
from tests.support.broker import Broker, Published

__all__ = [
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
    "laggard",
    "rows",
    "topics",
    "trace_codec",
    "trace_records",
    "wire",
]

COMMANDS = {"laggard": laggard_main, "laggard-agent": agent_main, "laggard-aggregator": aggregator_main}


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
