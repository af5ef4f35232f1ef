"""From what the clients did to what a node's kernel would have counted: cumulative, in the kernel's units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.simulation.closed_loop import PACKET_BYTES, Work
from bench.accuracy.simulation.scenario import Array, BoolArray, Conditions, Scenario

Counters = NDArray[np.int64]

DISK_FIELDS = (
    *("rd_ios", "rd_merges", "rd_sectors", "rd_ms", "wr_ios", "wr_merges", "wr_sectors", "wr_ms"),
    *("in_flight", "io_ms", "weighted_ms", "dc_ios", "dc_merges", "dc_sectors", "dc_ms", "fl_ios", "fl_ms"),
)
NET_FIELDS = ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets", "OutSegs", "RetransSegs")

_SECTOR = 512
_HOG_REQUEST_BYTES = 512 * 1024
_HOG_IN_FLIGHT = 128
"""dd of 256 MB keeps the queue full: nr_requests of the block layer."""
_MESSAGE_BYTES = 400
PLAIN_RETRANSMITS = 1e-4


@dataclass(frozen=True, slots=True)
class Recording:
    """What was collected of R runs: counters as read at the end of each of T intervals.

    `disk` (R, T, L, 17) and `net` (R, T, S, 6) are cumulative but for `in_flight`; `missing` (R, T, S) says
    which of a server's readings were lost. `faulty` (R, L): the truth.
    """

    scenarios: tuple[Scenario, ...]
    disk: Counters
    net: Counters
    missing: BoolArray
    faulty: BoolArray


def record(scenarios: Sequence[Scenario], conditions: Sequence[Conditions], work: Work) -> Recording:
    """The counters that `work` leaves behind."""
    hog = np.stack([c.hog_read for c in conditions])
    disk = _disk(scenarios, work, hog)
    net = _net(scenarios, conditions, work)
    per_server = scenarios[0].shape.luns_per_server
    for at, condition in enumerate(conditions):
        if condition.reset is not None:
            since, server = condition.reset
            luns = slice(server * per_server, (server + 1) * per_server)
            gauge = disk[at, since:, luns, DISK_FIELDS.index("in_flight")].copy()
            disk[at, since:, luns] -= disk[at, since - 1, luns]
            disk[at, since:, luns, DISK_FIELDS.index("in_flight")] = gauge
            net[at, since:, server] -= net[at, since - 1, server]
    return Recording(
        tuple(scenarios),
        disk,
        net,
        np.stack([c.missing for c in conditions]),
        np.stack([c.faulty for c in conditions]),
    )


def _disk(scenarios: Sequence[Scenario], work: Work, hog: Array) -> Counters:
    workload, interval = scenarios[0].workload, scenarios[0].interval_seconds
    done = np.floor(work.served * workload.requests + 1e-4)
    parts = done / workload.requests
    wait = work.served_wait * workload.requests * 1000
    hog_ios = np.cumsum(hog * interval, axis=1) / _HOG_REQUEST_BYTES
    hog_ms = np.cumsum(np.where(hog > 0, _HOG_IN_FLIGHT * interval * 1000, 0.0), axis=1)  # Little's law
    busy_ms = np.diff(work.busy * 1000, axis=1, prepend=0.0)
    io_ms = np.cumsum(np.where(hog > 0, interval * 1000, busy_ms), axis=1)
    columns = {
        "rd_ios": done[..., 0] + hog_ios,
        "rd_sectors": parts[..., 0] * (workload.part_bytes / _SECTOR)
        + hog_ios * (_HOG_REQUEST_BYTES / _SECTOR),
        "rd_ms": wait[..., 0] + hog_ms,
        "wr_ios": done[..., 1],
        "wr_merges": parts[..., 1] * 2,
        "wr_sectors": parts[..., 1] * (workload.part_bytes / _SECTOR),
        "wr_ms": wait[..., 1],
        "in_flight": np.cumsum(work.issued, axis=1) * workload.requests
        - done.sum(axis=-1)
        + np.where(hog > 0, _HOG_IN_FLIGHT, 0),
        "io_ms": io_ms,
        "weighted_ms": wait.sum(axis=-1) + hog_ms,
        "fl_ios": parts[..., 1] / 64,
        "fl_ms": parts[..., 1] / 64 * 12,
    }
    disk = np.zeros((*parts.shape[:3], len(DISK_FIELDS)), dtype=np.int64)
    for name, column in columns.items():
        disk[..., DISK_FIELDS.index(name)] = column + 1e-4  # the kernel rounds down, too
    return disk


def _net(scenarios: Sequence[Scenario], conditions: Sequence[Conditions], work: Work) -> Counters:
    """Data in the direction of the parts, acknowledgements in the other, messages and noise in both."""
    shape, workload, interval = scenarios[0].shape, scenarios[0].workload, scenarios[0].interval_seconds
    samples, servers = scenarios[0].samples, shape.servers
    chance = [np.random.default_rng((scenario.seed, 3)) for scenario in scenarios]
    parts = work.parts[:, :samples].reshape(len(scenarios), samples, servers, -1, 2).sum(axis=3)
    loss = np.stack([c.loss for c in conditions])
    hogged = np.stack([c.hog_net for c in conditions])
    link = np.stack([c.link for c in conditions])
    data = parts[..., ::-1] * workload.part_bytes  # received: what was written; sent: what was read
    messages = parts.sum(axis=-1, keepdims=True) * _MESSAGE_BYTES
    room = np.maximum(
        shape.link_bytes_per_s * interval - data * link, 0.05 * shape.link_bytes_per_s * interval
    )
    ssh = np.stack([g.gamma(2.0, 300.0 * interval, (samples, servers, 2)) for g in chance])
    sent = data + messages + ssh + np.where(hogged, room, 0.0)
    # What is lost on its way is sent again: the receiver's interface sees it before a firewall drops it.
    sent[..., 0] *= 1 + loss[..., 0]
    sent[..., 1] *= 1 + loss[..., 1]
    packets = sent / PACKET_BYTES
    # One acknowledgement for two packets; for every packet while some are missing.
    acks = packets[..., ::-1] * np.where(loss[..., ::-1] > 0, 0.9, 0.5)
    total = packets + acks
    again = PLAIN_RETRANSMITS + loss[..., 1] + 0.02 * loss[..., 0]
    retransmits = np.stack([g.poisson(p * a) for g, p, a in zip(chance, packets[..., 1], again, strict=True)])
    net = np.zeros((*parts.shape[:3], len(NET_FIELDS)), dtype=np.int64)
    rows = (sent[..., 0], total[..., 0], sent[..., 1], total[..., 1], total[..., 1], retransmits)
    for at, column in enumerate(rows):
        bytes_too = 66.0 * acks[..., at // 2] if at in (0, 2) else 0.0
        net[..., at] = np.cumsum(column + bytes_too, axis=1)
    return net
