"""The candidate: the slow brick, and the layer of the volume that holds calls the longest."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from laggard_aggregator.layers.gluster.counters import DATA, SLOW_NS, GlusterFinding, GlusterLayer
from laggard_aggregator.layers.gluster.levels import CONNECTION, slowest
from laggard_aggregator.layers.gluster.volume import Volume

SLOW_RATIO = 3.0
"""A brick this many times slower than the median of its peers is a finding, from 1 ms on."""
MIN_PEERS = 2
HELD_SHARE = 0.5
HELD_NS = 10e6
"""A layer that holds this share of a call's time is a finding, where the call takes 10 ms or more."""
_NETWORK_ADVICE = "Look at the network, the clients' threads and the translators between (locks, healing)."
_BRICK_ADVICE = "Look at the disk and the file system below this brick; record it with laggard layers record."
_ADVICE = {
    CONNECTION: _NETWORK_ADVICE,
    "disk": "Look at the disk and at what else uses it; laggard layers record shows its requests.",
    "storage/posix": "Look at the file system and the disk below; with a copy of /proc/diskstats from "
    "before and after, the disk shows.",
    "performance/io-threads": "Calls wait for a thread of the brick: raise performance.io-thread-count, or "
    "find those that occupy the threads.",
    "features/locks": "Calls wait for locks that other clients hold.",
    "mount/fuse": "Calls wait before the first translator: look at the CPU and threads of the client.",
}
_MULTIPLIED = ("cluster/disperse", "cluster/replicate")


@dataclass(frozen=True, slots=True)
class _Held:
    """Nanoseconds for which a call is held at a layer of this kind, which `label` names."""

    kind: str
    label: str
    ns: float


def findings(volume: Volume) -> list[GlusterFinding]:
    """Bricks slower than their peers, and the layer that holds calls the longest."""
    bricks = [layer for layer in volume.whole if layer.layer == "brick"]
    bricks += [_as_whole("brick", name, levels) for name, levels in volume.bricks.items() if levels]
    slow: dict[str, GlusterFinding] = {}
    for fop in DATA:
        for finding in _slow_bricks(bricks, fop):
            slow.setdefault(finding.candidate, finding)
    held = list({finding.candidate: finding for fop in DATA for finding in _holder(volume, fop)}.values())
    if slow or held:
        return [*slow.values(), *held]
    return list(_above_bricks(volume.whole, bricks))[:1]


def _as_whole(layer: str, name: str, levels: Sequence[GlusterLayer]) -> GlusterLayer:
    """A process by its highest level."""
    return GlusterLayer(layer, name, levels[0].fops)


def _slow_bricks(bricks: Sequence[GlusterLayer], fop: str) -> Iterator[GlusterFinding]:
    known = [(brick, mean) for brick in bricks if (mean := brick.mean_of(fop))]
    for brick, mean in sorted(known, key=lambda brick_mean: -brick_mean[1]):
        others = [value for other, value in known if other is not brick]
        if len(others) < MIN_PEERS:
            return
        usual = statistics.median(others)
        if mean >= SLOW_NS and mean >= SLOW_RATIO * usual:
            yield GlusterFinding(
                f"brick {brick.name}",
                f"A {fop} takes {mean / 1e6:.2f} ms at brick {brick.name}, {usual / 1e6:.2f} ms at "
                f"the median of its {len(others)} peers.",
                _BRICK_ADVICE,
            )


def _holder(volume: Volume, fop: str) -> Iterator[GlusterFinding]:
    """The layer of statedumps that holds most of an operation's time, from the slowest client down."""
    client = max(volume.clients.items(), key=lambda item: _top(item[1], fop), default=("", []))
    brick = max(volume.bricks.items(), key=lambda item: _top(item[1], fop), default=("", []))
    passed = _passed(*client, fop, connected=_top(brick[1], fop)) + _passed_brick(*brick, volume.disks, fop)
    total = sum(layer.ns for layer in passed)
    worst = max(passed, key=lambda layer: layer.ns, default=None)
    if worst is None or total < HELD_NS or worst.ns < HELD_SHARE * total:
        return
    if worst.kind in _MULTIPLIED:
        advice = "Calls wait for several bricks, for locks between clients, or for healing (see heal info)."
    else:
        advice = _ADVICE.get(worst.kind, f"Look at the options of {worst.kind}.")
    where = worst.label if worst.kind == CONNECTION else f"at {worst.label}"
    yield GlusterFinding(
        worst.label,
        f"A {fop} takes {total / 1e6:.2f} ms, {worst.ns / 1e6:.2f} ms of it {where}.",
        advice,
        worst.ns / total,
    )


def _top(levels: Sequence[GlusterLayer], fop: str) -> float:
    return levels[0].mean_of(fop) if levels else 0.0


def _passed(name: str, levels: Sequence[GlusterLayer], fop: str, *, connected: float) -> list[_Held]:
    """The client's levels, and the slowest connection's time without the brick's."""
    own = [
        _Held(level.layer, f"{level.layer} of client {name}", level.held.get(fop, 0.0))
        for level in levels
        if level.layer != CONNECTION and level.mean_of(fop)
    ]
    between = slowest([level for level in levels if level.layer == CONNECTION], fop) - connected
    label = "between client and brick" if connected else f"below {CONNECTION} of client {name}"
    return [*own, _Held(CONNECTION, label, max(0.0, between))] if levels else []


def _passed_brick(
    name: str, levels: Sequence[GlusterLayer], disks: Sequence[GlusterLayer], fop: str
) -> list[_Held]:
    """The brick's levels; the lowest without the disk's time, where only one disk can have it."""
    levels = [level for level in levels if level.mean_of(fop)]
    held = [
        _Held(level.layer, f"{level.layer} of brick {name}", level.held.get(fop, 0.0)) for level in levels
    ]
    if held and held[-1].kind == "storage/posix":
        lowest, calls = held[-1], levels[-1].fops[fop][0]
        of_disks = [(disk.name, disk.fops[fop]) for disk in disks if disk.mean_of(fop)]
        by_call = [(disk, requests * mean / calls) for disk, (requests, mean) in of_disks]
        slow = [(disk, ns) for disk, ns in by_call if ns >= HELD_SHARE * lowest.ns > 0]
        if len(slow) == 1:
            below = min(slow[0][1], lowest.ns)  # a call's requests may run beside each other
            held[-1] = _Held(lowest.kind, lowest.label, lowest.ns - below)
            held.append(_Held("disk", f"disk {slow[0][0]} below brick {name}", below))
    return held


def _above_bricks(whole: Sequence[GlusterLayer], bricks: Sequence[GlusterLayer]) -> Iterator[GlusterFinding]:
    """Clients whose calls take longer than at any brick, by the counters of whole processes."""
    for client in (layer for layer in whole if layer.layer == "client"):
        for fop in DATA:
            mean, below = client.mean_of(fop), [*filter(None, (brick.mean_of(fop) for brick in bricks))]
            if not below or mean < SLOW_NS:
                continue
            share = 1 - max(below) / mean
            if share >= HELD_SHARE:
                yield GlusterFinding(
                    "between client and brick",
                    f"A {fop} takes {mean / 1e6:.2f} ms at {client.name}, at most "
                    f"{max(below) / 1e6:.2f} ms at any brick.",
                    _NETWORK_ADVICE,
                    share,
                )
