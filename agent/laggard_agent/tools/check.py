"""`laggard-agent --check`: the files, the collectors, the broker, and whether an aggregator answers."""

import tempfile
from pathlib import Path
from typing import TextIO

from laggard_agent.collectors.interface import Roots
from laggard_agent.collectors.registry import make_collector
from laggard_agent.sampling.batcher import Batcher
from laggard_agent.sampling.sampler import collect
from laggard_agent.settings import AgentSettings
from laggard_agent.transport.broker_check import check_broker
from laggard_common import wire
from laggard_common.clock import Clock
from laggard_common.daemon.host_name import HostName
from laggard_common.mqtt.settings import client_arguments
from laggard_common.visible import visible
from laggard_common.wire.limits import STREAM_BYTES
from laggard_common.wire.schema import Schema


def check(path: Path, settings: AgentSettings, roots: Roots, clock: Clock, out: TextIO) -> int:
    """Prints a line for each thing that is checked; returns 0 when all are good, else 1.

    Raises ConfigError for the files of [mqtt].
    """
    lines = _Lines(out)
    arguments = client_arguments(settings.mqtt)
    lines.add("configuration", good=True, text=str(path))
    name = settings.node
    if isinstance(name, HostName) and not name.is_usable:
        lines.add(
            "node",
            good=False,
            text=f"the host's name {str(name)!r} could be any host: rename it, or set node",
        )
        return 1
    lines.add("node", good=True, text=name)
    _check_spool(settings.spool.directory, lines)
    size = _check_collectors(settings, roots, clock, lines)
    for finding in check_broker(settings, arguments, size):
        lines.add(finding.question.value, good=finding.is_good, text=finding.text)
    return lines.exit_code


class _Lines:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.exit_code = 0

    def add(self, what: str, *, good: bool, text: str) -> None:
        """Prints a line."""
        self.exit_code |= not good
        self._out.write(f"{'good' if good else 'BAD '} {what}: {visible(text)}\n")


def _check_spool(directory: Path, lines: _Lines) -> None:
    place = next((path for path in (directory, *directory.parents) if path.exists()), directory)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as exc:
        lines.add("spool", good=False, text=f"{directory}: {exc.strerror or exc}")
    else:
        lines.add("spool", good=True, text=str(directory))


def _check_collectors(settings: AgentSettings, roots: Roots, clock: Clock, lines: _Lines) -> int:
    """Reads every collector once; returns the size of the largest message that describes them."""
    largest = 0
    for name in settings.collectors:
        collected = collect(make_collector(name, settings.tables, roots, clock.wall_ns, clock), clock)
        health = collected.health
        text = health.error or f"{health.components} rows"
        lines.add(f"collector {name}", good=health.success, text=text)
        for reading in collected.readings:
            batcher = Batcher(reading.source, settings.interval_ns, 1)
            batches = batcher.add(clock.wall_ns() // settings.interval_ns * settings.interval_ns, reading)
            schema = Schema(
                settings.node,
                reading.source,
                bytes(STREAM_BYTES),
                1,
                settings.interval_ns,
                settings.batch_samples,
                reading.fields,
                batcher.dictionary.components,
            )
            sizes = [len(wire.encode_schema(schema)), *(len(batch.payload) for batch in batches)]
            largest = max(largest, *sizes)
    return largest
