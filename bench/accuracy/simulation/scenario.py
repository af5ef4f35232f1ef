"""One run: what happens to whom and when, before any client has asked for anything."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.simulation.shapes import Shape
from bench.accuracy.simulation.workloads import Workload

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run of `samples` intervals of `interval_seconds` with `fault` from `start` to `end` seconds.

    The HotDep paper's: 120 s fault-free, 300 s of fault, 180 s after it. The same seed gives the same run.
    """

    shape: Shape
    workload: Workload
    fault: str
    seed: int
    samples: int = 600
    interval_seconds: float = 1.0
    start: float = 120.0
    end: float = 420.0


@dataclass(frozen=True, slots=True)
class Guests:
    """`count` more clients from `start` to `end` seconds, of LUN `lun` alone.

    Each asks for `requests` block requests of the workload's kind at a time, waits for them and thinks for
    `think_seconds`. `local`: runs on the server, without its link.
    """

    lun: int
    count: int
    requests: int
    think_seconds: float
    start: float
    end: float
    local: bool


@dataclass(slots=True)
class Conditions:
    """What the components are like in each of T intervals; healthy and quiet is 1 (factors) or 0 (the rest).

    `service` (T, L): time that a part occupies a LUN, relative to the workload's. `link` (T, S, 2): time
    that bytes occupy a server's link, received and sent. `loss` (T, S, 2): share of packets lost, received
    and sent. `hog_read` (T, L): bytes a second that a local process reads. `hog_net` (T, S, 2): a foreign
    stream fills what is left of the link. `server_seconds` (T, S): what a part takes longer within the
    server. `work` (T, S), `client` (T, clients): factor by which a server, or a client, takes longer for
    every request. `faulty_client`: its number, or -1. `activity` (T,): how eager the clients are.
    `popularity` (L,): chance that a file starts there. `hot` (T,): share of the files that start at `hot_lun`
    besides. `guests`: clients besides the workload's. `faulty` (L,), `level`: the truth.
    """

    service: Array
    link: Array
    loss: Array
    hog_read: Array
    hog_net: BoolArray
    sgm: BoolArray
    server_seconds: Array
    work: Array
    client: Array
    activity: Array
    popularity: Array
    hot: Array
    hot_lun: int
    missing: BoolArray
    reset: tuple[int, int] | None
    faulty: BoolArray
    level: str
    guests: Guests | None = None
    faulty_client: int = -1


def quiet(scenario: Scenario) -> Conditions:
    """Conditions in which every LUN is like every other and nothing happens."""
    t, s, luns = scenario.samples, scenario.shape.servers, scenario.shape.luns
    return Conditions(
        service=np.ones((t, luns)),
        link=np.ones((t, s, 2)),
        loss=np.zeros((t, s, 2)),
        hog_read=np.zeros((t, luns)),
        hog_net=np.zeros((t, s, 2), dtype=np.bool_),
        sgm=np.zeros((t, luns), dtype=np.bool_),
        server_seconds=np.zeros((t, s)),
        work=np.ones((t, s)),
        client=np.ones((t, luns)),
        activity=np.ones(t),
        popularity=np.full(luns, 1.0 / luns),
        hot=np.zeros(t),
        hot_lun=0,
        missing=np.zeros((t, s), dtype=np.bool_),
        reset=None,
        faulty=np.zeros(luns, dtype=np.bool_),
        level="component",
    )
