"""`laggard-agent --once`: reads every enabled collector once, one JSON object per line."""

import json
from typing import TextIO

from laggard_agent.collectors.interface import Reading, Roots
from laggard_agent.collectors.registry import make_collector
from laggard_agent.sampling.sampler import collect
from laggard_agent.settings import AgentSettings
from laggard_agent.tools import seconds
from laggard_common.clock import Clock


def read_once(settings: AgentSettings, roots: Roots, clock: Clock, out: TextIO) -> dict[str, str]:
    """Prints a line per component of each reading; returns the errors of failed collectors."""
    failed = {}
    for name in settings.collectors:
        collector = make_collector(name, settings.tables, roots, clock.wall_ns, clock)
        collected = collect(collector, clock)
        for reading in collected.readings:
            _print(settings.node, reading, out)
        if not collected.health.success:
            failed[name] = collected.health.error
    return failed


def _print(node: str, reading: Reading, out: TextIO) -> None:
    for component, row in zip(reading.components, reading.rows, strict=True):
        values = {f.name: v for f, v in zip(reading.fields, row, strict=True) if v is not None}
        head = json.dumps({"collector": reading.source, "node": node})[:-1]
        rest = {"component": component.name, "id": component.id, "labels": dict(component.labels)}
        tail = json.dumps({**rest, "counters": values})[1:]
        out.write(f'{head}, "time": {seconds(reading.read_at_ns)}, {tail}\n')
