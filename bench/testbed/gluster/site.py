"""Laggard on a GlusterFS cluster: an agent on every host."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.testbed import site as testbed
from bench.testbed.gluster.cluster import Cluster
from bench.testbed.hosts import Host, running


@dataclass(frozen=True, slots=True)
class Detection:
    """How windows are made, in intervals of a second; everything else is the aggregator's default."""

    window: int
    shift: int
    confirm: int


def site(
    made: Cluster, detection: Detection, folder: Path, tables: str = ""
) -> AbstractContextManager[testbed.Site]:
    """Laggard at work on the cluster, once every brick is known. Raises TestbedError.

    `tables`: more of the aggregator's configuration.
    """
    agents = [_agent(made, each) for each in (*made.servers, *made.clients)]
    table = (
        f"[detect]\ninterval_seconds = 1.0\nwindow_samples = {detection.window}\n"
        f"shift_samples = {detection.shift}\nconfirm = {detection.confirm}\n"
    )
    for server in made.servers:
        address = re.escape(server.address)
        table += f"\n[[topology]]\ncomponents = '[*]/{address}'\nserver = '{server.name}'\n"
    table += f"\n{tables}"
    return testbed.site(folder, table, agents, lambda there: there.live("gluster_brick") == len(made.bricks))


def _agent(made: Cluster, each: Host) -> testbed.Agent:
    """An agent: a server's reads its bricks' disks alone, a client's TCP by server."""
    disks = [brick.lun.sampled for brick in made.bricks_of(each.name)]
    destinations = [] if disks else [f"{server.address}/32" for server in made.servers]
    return testbed.Agent(
        each.name,
        "storage" if disks else "compute",
        ["gluster", "net", *(["diskstats", "host"] if disks else [])],
        f"[diskstats]\ninclude = {json.dumps(disks)}\n\n[net]\ndestinations = {json.dumps(destinations)}\n",
        partial(running, each),
    )
