"""What the servers' functions did: CPU samples of everything, calls and self time of the file-system daemon.

A table of costs, of the right order for the HotDep paper's machines (2.8 GHz, PVFS 2.8.1 with a thread per
disk operation and a polling network layer), and the paper's own account of what each fault changes (section
on results): hogs show as the CPU time of a foreign process and of the kernel's TCP, disk contention as time
blocked in dbpf_pread and dbpf_pwrite, lost packets on the way in as more and smaller reads of sockets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.accuracy.simulation.closed_loop import Work
from bench.accuracy.simulation.counters import NET_FIELDS, Recording
from bench.accuracy.simulation.scenario import Array, Conditions

CYCLES_PER_SAMPLE = 100_000
HERTZ = 2.8e9
SAMPLES_PER_SECOND = HERTZ / CYCLES_PER_SAMPLE

# Microseconds of CPU: a second at all times, a part read, a part written, a MiB read, a MiB written.
_COSTS: dict[str, tuple[float, float, float, float, float]] = {
    "kernel:copy_user_generic_string": (50, 0, 0, 450, 500),
    "kernel:tcp_recvmsg": (20, 8, 8, 10, 160),
    "kernel:tcp_rcv_established": (30, 10, 10, 90, 210),
    "kernel:tcp_sendmsg": (20, 10, 8, 260, 15),
    "kernel:tcp_ack": (20, 4, 4, 140, 10),
    "kernel:tcp_v4_rcv": (20, 4, 4, 70, 130),
    "kernel:tcp_transmit_skb": (15, 5, 5, 150, 60),
    "kernel:ip_rcv": (10, 3, 3, 40, 80),
    "kernel:csum_partial_copy": (10, 2, 2, 110, 20),
    "tg3:tg3_poll": (200, 10, 10, 210, 260),
    "tg3:tg3_start_xmit": (50, 8, 8, 160, 60),
    "kernel:__alloc_skb": (20, 5, 5, 90, 80),
    "kernel:kfree": (40, 5, 8, 60, 60),
    "kernel:dio_bio_submit": (0, 15, 18, 20, 25),
    "kernel:get_user_pages": (0, 20, 20, 60, 60),
    "kernel:cfq_insert_request": (5, 12, 14, 4, 4),
    "kernel:ext3_get_block": (5, 10, 40, 6, 20),
    "kernel:journal_dirty_metadata": (10, 0, 30, 0, 5),
    "kernel:scsi_done": (5, 12, 12, 3, 3),
    "kernel:schedule": (400, 30, 30, 5, 5),
    "kernel:sys_epoll_wait": (600, 20, 20, 5, 5),
    "kernel:apic_timer_interrupt": (900, 0, 0, 0, 0),
    "pvfs2-server:PINT_state_machine_next": (80, 60, 70, 3, 3),
    "pvfs2-server:job_testcontext": (700, 40, 40, 4, 4),
    "pvfs2-server:BMI_testcontext": (900, 50, 50, 6, 6),
    "pvfs2-server:tcp_do_work": (500, 60, 60, 25, 30),
    "pvfs2-server:BMI_sockio_nbrecv": (30, 15, 15, 5, 30),
    "pvfs2-server:BMI_sockio_nbsend": (30, 15, 15, 30, 5),
    "pvfs2-server:dbpf_pread": (0, 25, 0, 1, 0),
    "pvfs2-server:dbpf_pwrite": (0, 0, 25, 0, 1),
    "pvfs2-server:dbpf_keyval_read": (0, 10, 60, 0, 0),
    "libdb:__memp_fget": (5, 20, 90, 0, 0),
}
_ROGUES = {
    "dd:main": 150.0,
    "kernel:dio_get_page": 100.0,
    "sgm_dd:sg_start_io": 200.0,
    "sg:sg_mmap_fault": 100.0,
    "socat:main": 300.0,
}
"""Microseconds for a MiB of what the hogs move."""

CALLED = tuple(name for name in _COSTS if name.startswith("pvfs2-server:"))
SAMPLED = (*_COSTS, *_ROGUES, "kernel:tcp_retransmit_skb", "kernel:nf_hook_slow", "pvfs2-server:timeouts")
_SGM_BYTES_PER_S = 35e6
_MIB = 2**20
_NOISE = 0.06


@dataclass(frozen=True, slots=True)
class Profiles:
    """Sums by interval, server and function: `samples` (R, T, S, len(SAMPLED)), `count` and `time` (seconds)
    (R, T, S, len(CALLED)). `cpu_seconds` is samples over SAMPLES_PER_SECOND."""

    samples: Array
    count: Array
    time: Array


def profiles(recording: Recording, work: Work, conditions: Sequence[Conditions]) -> Profiles:
    """What a profiler and a tracer on every server would have found."""
    scenario = recording.scenarios[0]
    runs, samples, servers = len(recording.scenarios), scenario.samples, scenario.shape.servers
    chance = [np.random.default_rng((s.seed, 5)) for s in recording.scenarios]
    by_server = (runs, samples, servers, -1)
    parts = work.parts[:, :samples].reshape(*by_server, 2).sum(axis=3)
    waited = work.waited[:, :samples].reshape(*by_server, 2).sum(axis=3)
    mib = parts * scenario.workload.part_bytes / _MIB
    loss = np.stack([c.loss for c in conditions])
    units = np.concatenate([np.full((*parts.shape[:3], 1), scenario.interval_seconds), parts, mib], axis=3)
    micros = units @ np.array(list(_COSTS.values())).T

    hog = np.stack([c.hog_read for c in conditions]).reshape(by_server).sum(axis=3) / _MIB
    sgm = np.stack([c.sgm for c in conditions]).reshape(by_server).sum(axis=3) * _SGM_BYTES_PER_S / _MIB
    foreign = _foreign_mib(recording, parts, scenario.workload.part_bytes, conditions)
    amounts = (hog, hog, sgm, sgm, foreign.sum(axis=3))
    rogue = np.stack([a * cost for a, cost in zip(amounts, _ROGUES.values(), strict=True)], axis=3)
    costs = np.array([(row[4], row[3]) for row in _COSTS.values()])  # as if it were written or read
    network = np.array(
        [name.startswith(("kernel:tcp", "kernel:ip_", "tg3:", "kernel:__alloc")) for name in _COSTS]
    )
    micros += foreign @ np.where(network[:, None], costs, 0.0).T
    again = np.diff(recording.net[..., NET_FIELDS.index("RetransSegs")], axis=1, prepend=0).clip(0)
    late = np.where(loss.max(axis=3) > 0, 400.0, 20.0) * scenario.interval_seconds
    packets = mib.sum(axis=3) * 724
    extra = np.stack([again * 6.0, np.where(loss[..., 0] > 0, packets * 0.4, 0.0), late], axis=3)
    micros = np.concatenate([micros, rogue, extra], axis=3)
    expected = micros * 1e-6 * SAMPLES_PER_SECOND
    sampled = np.stack([g.poisson(e * _jitter(g, e.shape)) for g, e in zip(chance, expected, strict=True)])

    count, time = _calls(parts, mib, waited, micros, loss, conditions, scenario.interval_seconds)
    count = np.stack([g.poisson(c * _jitter(g, c.shape)) for g, c in zip(chance, count, strict=True)])
    time = time * np.stack([_jitter(g, time.shape[1:]) for g in chance])
    return Profiles(sampled.astype(np.float64), count.astype(np.float64), time)


def _jitter(chance: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random behaviour of a function from second to second, beside what sampling itself adds."""
    factors: Array = chance.lognormal(0.0, _NOISE, shape)
    return factors


def _foreign_mib(
    recording: Recording, parts: Array, part_bytes: float, conditions: Sequence[Conditions]
) -> Array:
    """MiB that a hog received and sent, (R, T, S, 2)."""
    moved = np.diff(recording.net[..., (0, 2)], axis=1, prepend=0).clip(0)
    hogged = np.stack([c.hog_net for c in conditions])
    return np.where(hogged, np.maximum(moved - parts[..., ::-1] * part_bytes, 0.0), 0.0) / _MIB


def _calls(
    parts: Array,
    mib: Array,
    waited: Array,
    micros: Array,
    loss: Array,
    conditions: Sequence[Conditions],
    seconds: float,
) -> tuple[Array, Array]:
    """Expected calls, and self seconds with what was waited, of CALLED."""
    both = parts.sum(axis=3)
    at = {name.partition(":")[2]: i for i, name in enumerate(CALLED)}
    count = np.zeros((*both.shape, len(CALLED)))
    torn = 1 + 4 * (loss[..., 0] > 0)  # data trickles in, so that each read of the socket gets less
    calls = {
        "PINT_state_machine_next": both * 30,
        "job_testcontext": 100 * seconds + both * 6,
        "BMI_testcontext": 110 * seconds + both * 8 + 20 * seconds * (loss.max(axis=3) > 0),
        "tcp_do_work": 110 * seconds + both * 8 + mib[..., 1] * 12 * torn,
        "BMI_sockio_nbrecv": both * 3 + mib[..., 1] * 16 * torn,
        "BMI_sockio_nbsend": both * 3 + mib[..., 0] * 10,
        "dbpf_pread": parts[..., 0],
        "dbpf_pwrite": parts[..., 1],
        "dbpf_keyval_read": parts[..., 1] * 2 + parts[..., 0],
    }
    for name, expected in calls.items():
        count[..., at[name]] = expected
    names = list(_COSTS)
    time = micros[..., [names.index(name) for name in CALLED]] * 1e-6
    # The daemon's thread for a part waits as long as the part does; a starved CPU stretches everything.
    time[..., at["dbpf_pread"]] += waited[..., 0]
    time[..., at["dbpf_pwrite"]] += waited[..., 1]
    starved = np.stack([c.server_seconds for c in conditions])
    time[..., at["PINT_state_machine_next"]] += both * starved
    return count, time
