"""Bottom-up search (Lu & Shen, section 3): anomalies of the lowest layers, followed up to where they begin.

The highest layer that shows an anomaly is a candidate for its cause; the paper says "typically". Labels are
set by limits of this module, or by the range of healthy recordings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from laggard_aggregator.layers.boundary import Boundary
from laggard_aggregator.layers.columns import READ, rank_of
from laggard_aggregator.layers.stack import Stack, of_the_top

LINKED_SHARE = 0.5
"""A boundary is judged when this share of the upper requests waits for lower ones."""
MIN_REQUESTS = 8
CONCURRENT = 1.5
"""Average concurrency while busy from which a layer counts as concurrent."""
DROP = 0.5
"""The layer below has at most this part of the concurrency of the layer above."""
WAITING_SHARE = 0.3
"""Part of a request's residence that it waits for its issue where requests are serialised."""
BUSY_SHARE = 0.5
"""A layer that serialises is busy for at least this part of the time of the layer above."""
HELD_SHARE = 0.5
"""Part of the top layer's residence that a boundary may hold before it is a finding."""
HELD_US = 200.0
KERNEL_HELD_US = 2000.0
"""The same below the system calls, where a thread of a busy machine waits for its CPU."""
SHORT_RUN_BYTES = 256 << 10
"""Runs below this are short: the paper's read-ahead of 256 KB cures them."""
CHAIN_RATIO = 2.0
SERVICE_MS = 30.0
SERVICE_BYTES_PER_MS = 20_000.0
"""A device that takes longer than 30 ms and 20 MB/s a request, one after the other, is slow by itself."""
OUTSIDE = 2.0
"""Factor by which a characteristic must be outside the range of healthy recordings."""


@dataclass(frozen=True, slots=True)
class LayerFinding:
    """A candidate. `above` and `below`: indexes of the layers around it, equal when it is one layer.

    `share`: part of the top layer's residence that it accounts for; None where that is no measure of it.
    """

    kind: str
    candidate: str
    above: int
    below: int
    text: str
    advice: str
    share: float | None = None


def findings(stack: Stack, healthy: Sequence[Stack] = ()) -> list[LayerFinding]:
    """The candidates, the gravest first. With `healthy`, characteristics in their range are no anomaly.

    Requests of others on the same devices are left out.
    """
    stack, healthy = of_the_top(stack), [of_the_top(twin) for twin in healthy]
    serialised = _serialisation(stack, healthy)
    skipped = {(finding.above, finding.below) for finding in serialised}
    candidates = serialised + _held(stack, healthy, skipped)
    for bottom in stack.bottoms():
        candidates += _interleaving(stack, bottom, healthy)
    for bottom in stack.bottoms():
        candidates += _slow_device(stack, bottom, healthy)
    candidates += _outside(stack, healthy, candidates)
    return sorted(candidates, key=lambda finding: -(finding.share or 0.0))


class HeldTimes(NamedTuple):
    """Mean times of linked requests before issue and after completion. `share`: of the residence of the top
    layer's requests.
    """

    before_us: float
    after_us: float
    share: float

    @property
    def sum_us(self) -> float:
        """Mean time for which the boundary holds a request."""
        return self.before_us + self.after_us


def held_times(stack: Stack, boundary: Boundary) -> HeldTimes:
    """How long a boundary holds requests; the share is at most 1."""
    times = _held_in_all(stack, boundary)
    return times._replace(share=min(times.share, 1.0))


def _held_in_all(stack: Stack, boundary: Boundary) -> HeldTimes:
    """As `held_times`; the share is above 1 where more lower requests wait at a time than upper ones."""
    upper = stack.layers[boundary.upper].requests
    linked = boundary.linked & stack.own[boundary.upper]
    if not linked.any():
        return HeldTimes(0.0, 0.0, 0.0)
    before = (boundary.issue - upper.begin_ns)[linked].clip(0).astype(np.float64)
    after = (upper.end - boundary.complt)[linked].clip(0).astype(np.float64)
    top = stack.characteristics[0].concurrency.residence_seconds * 1e9
    share = float(before.sum() + after.sum()) / top if top else 0.0
    return HeldTimes(float(before.mean()) / 1000, float(after.mean()) / 1000, share)


def _awaited(stack: Stack) -> list[Boundary]:
    """Boundaries from the top down, until a layer does not wait for the one below.

    Below a layer that answers before (a buffer, a cache, write-back) residence is not the application's
    waiting.
    """
    boundaries = []
    awaited = {0}
    for boundary in stack.boundaries:
        if boundary.upper not in awaited or len(stack.layers[boundary.upper].requests) < MIN_REQUESTS:
            continue
        if boundary.linked_share() >= LINKED_SHARE:
            awaited.add(boundary.lower)
            boundaries.append(boundary)
    return boundaries


def _concurrency(stack: Stack, layer: int) -> float:
    return stack.characteristics[layer].concurrency.mean_busy


def _in_range(value: Callable[[Stack], float | None], stack: Stack, healthy: Sequence[Stack]) -> bool:
    """True when healthy recordings have a value like this one."""
    known = [v for v in map(value, healthy) if v is not None]
    mine = value(stack)
    if not known or mine is None:
        return False
    return min(known) / OUTSIDE <= mine <= max(known) * OUTSIDE


def _serialisation(stack: Stack, healthy: Sequence[Stack]) -> list[LayerFinding]:
    """The highest boundary at which concurrency falls, while requests wait and the layer below is busy."""
    for boundary in _awaited(stack):
        above, below = boundary.upper, boundary.lower
        high, low = _concurrency(stack, above), _concurrency(stack, below)
        if (
            held_times(stack, boundary).before_us
            < WAITING_SHARE * stack.characteristics[above].mean_residence_us
        ):
            continue
        if stack.layers[below].name == "device" and stack.characteristics[below].concurrency.most > 1:
            continue  # bios that merge are no measure of concurrency
        if high < CONCURRENT or low > max(1.0, DROP * high) or low > high / CONCURRENT:
            continue
        busy = [stack.characteristics[layer].concurrency.busy_seconds for layer in (above, below)]
        if busy[1] < BUSY_SHARE * busy[0]:
            continue
        names = [stack.layers[layer].name for layer in (above, below)]
        if _in_range(partial(_ratio, names=names), stack, healthy):
            continue
        return [_serialised(stack, boundary, high, low)]
    return []


def _ratio(stack: Stack, names: Sequence[str]) -> float | None:
    """Concurrency of the second layer for one of the first."""
    at = [_find(stack, name) for name in names]
    if at[0] is None or at[1] is None:
        return None
    high = _concurrency(stack, at[0])
    return _concurrency(stack, at[1]) / high if high else None


def _serialised(stack: Stack, boundary: Boundary, high: float, low: float) -> LayerFinding:
    above, below = boundary.upper, boundary.lower
    held = held_times(stack, boundary)
    other_thread = _served_by_others(stack, boundary)
    candidate = between(stack, above, below, library=other_thread)
    most = stack.characteristics[below].concurrency.most
    text = (
        f"Requests are serialised {candidate}: {stack.layers[above].label} has {high:.2f} outstanding "
        f"on average while busy, {stack.layers[below].label} {low:.2f} (at most {most}). A request waits "
        f"{us(held.before_us)} of {us(stack.characteristics[above].mean_residence_us)} before it is issued."
    )
    if other_thread:
        advice = (
            "Other threads than the submitters make the calls, one at a time, as glibc's POSIX aio "
            "does for each descriptor: open the file once for each request in flight, or use threads "
            "with pread, or io_uring."
        )
    else:
        advice = (
            "Look for one lock, one thread or one descriptor that all requests of "
            f"{stack.layers[above].label} share."
        )
    return LayerFinding("serialisation", candidate, above, below, text, advice, held.share)


def _served_by_others(stack: Stack, boundary: Boundary) -> bool:
    """True when the lower requests run in other threads than the upper ones."""
    upper, lower = stack.layers[boundary.upper].requests, stack.layers[boundary.lower].requests
    a, b = upper.thread[boundary.matching.upper], lower.thread[boundary.matching.lower]
    known = (a >= 0) & (b >= 0)
    return bool(known.any()) and float((a[known] != b[known]).mean()) > 0.5


def between(stack: Stack, above: int, below: int, *, library: bool = False) -> str:
    """Name of a boundary. With `library`, calls by threads of a library stand below a layer of the
    program.
    """
    high, low = stack.layers[above], stack.layers[below]
    if high.device and high.device != low.device:
        return "device"
    first = (
        "library" if library and high.name == "application" and low.name == "syscall" else _shown(high.name)
    )
    return f"between {first} and {_shown(low.name)}"


def _shown(name: str) -> str:
    return "system call" if name == "syscall" else name


def _held(stack: Stack, healthy: Sequence[Stack], skipped: set[tuple[int, int]]) -> list[LayerFinding]:
    """Boundaries that hold requests for most of the application's waiting, though the layer below is free."""
    findings = []
    for boundary in _awaited(stack):
        if (boundary.upper, boundary.lower) in skipped:
            continue
        upper = stack.layers[boundary.upper]
        held = _held_in_all(stack, boundary)
        share, least = held.share, HELD_US
        if stack.layers[boundary.lower].rank > rank_of("syscall"):
            share *= held.before_us / max(held.sum_us, 1e-9)  # after completion a thread may wait for its CPU
            least = KERNEL_HELD_US
        if share < HELD_SHARE or held.sum_us < least:
            continue
        names = (upper.name, stack.layers[boundary.lower].name)
        if _in_range(partial(_held_between, names=names), stack, healthy):
            continue
        findings.append(_finding_held(stack, boundary, held._replace(share=min(share, 1.0))))
    return findings


def _held_between(stack: Stack, names: tuple[str, str]) -> float | None:
    for boundary in stack.boundaries:
        if (stack.layers[boundary.upper].name, stack.layers[boundary.lower].name) == names:
            return held_times(stack, boundary).sum_us
    return None


def _finding_held(stack: Stack, boundary: Boundary, held: HeldTimes) -> LayerFinding:
    above, below = boundary.upper, boundary.lower
    high, low = stack.layers[above], stack.layers[below]
    candidate = between(stack, above, below)
    idle = 1 - _busy_share(stack, boundary)
    where = f"{us(held.before_us)} before {low.label} gets it, {us(held.after_us)} after {low.label} is done"
    residence = us(stack.characteristics[above].mean_residence_us)
    if low.rank < rank_of("syscall") and idle >= BUSY_SHARE:
        size = stack.characteristics[below].mean_request_bytes
        text = (
            f"{low.label.capitalize()} is idle for {idle:.0%} of the time in which {high.label} "
            f"waits: each request of {_bytes(size)} takes {residence}, {where}."
        )
        advice = (
            f"{high.label.capitalize()} waits for every answer. Let the client buffer and send larger "
            "messages, or keep several requests in flight."
        )
        return LayerFinding("idle", candidate, above, below, text, advice, held.share)
    if candidate == "device":
        text = (
            f"Device {high.device} holds requests: {residence} each, though {low.label} below it needs "
            f"{us(stack.characteristics[below].mean_residence_us)}: {where}."
        )
        advice = (
            f"Look at {high.label} itself: throttling, its driver or controller, the path to {low.label}."
        )
    else:
        text = (
            f"Requests are held {candidate}: {residence} each in {high.label}, {where}, which is busy "
            f"{1 - idle:.0%} of that time."
        )
        advice = (
            "Look for throttling of the control group (io.max, blkio), memory pressure, locks of the "
            "file system."
            if low.name == "block"
            else f"Look at the code {candidate}: locks, queues, a limit on rates."
        )
    return LayerFinding("slow", candidate, above, below, text, advice, held.share)


def _busy_share(stack: Stack, boundary: Boundary) -> float:
    above = stack.characteristics[boundary.upper].concurrency.busy_seconds
    below = stack.characteristics[boundary.lower].concurrency.busy_seconds
    return min(1.0, below / above) if above else 1.0


def _interleaving(stack: Stack, lowest: int, healthy: Sequence[Stack]) -> list[LayerFinding]:
    """Short runs of long sequences at the lowest layer of a device, followed up."""
    placed = [at for at in stack.path(lowest) if len(stack.characteristics[at].sequentiality.run_bytes)]
    if not placed or not _is_interleaved(stack, placed[0]):
        return []
    bottom = placed[0]
    run = stack.characteristics[bottom].sequentiality.mean_run_bytes
    name = stack.layers[bottom].name
    if _in_range(partial(_run_of, name=name), stack, healthy):
        return []
    highest = bottom
    for at in placed[1:]:
        other = stack.characteristics[at].sequentiality
        if not _is_interleaved(stack, at) or other.mean_run_bytes > OUTSIDE * run:
            break
        highest = at
    order = stack.characteristics[highest].sequentiality
    label = stack.layers[highest].label
    text = (
        f"{order.chains} sequential accesses are interleaved from {label} down: runs of {_bytes(run)} at "
        f"{stack.layers[bottom].label}, where {label} reads or writes on for "
        f"{_bytes(order.mean_chain_bytes())} each. "
        "A disk with an arm seeks between them."
    )
    reads = (stack.layers[highest].requests.operation == READ).mean() >= 0.5
    advice = (
        "Read further ahead (for example blockdev --setra 4096, or prefetch in the server), or let "
        "fewer readers "
        "read larger blocks."
        if reads
        else "Buffer writes and send them in larger blocks, or write one sequence after the other."
    )
    return [LayerFinding("interleaving", _shown(stack.layers[highest].name), highest, highest, text, advice)]


def _is_interleaved(stack: Stack, layer: int) -> bool:
    order = stack.characteristics[layer].sequentiality
    return (
        len(order.run_bytes) >= MIN_REQUESTS
        and order.mean_run_bytes < SHORT_RUN_BYTES
        and order.mean_chain_bytes() >= CHAIN_RATIO * order.mean_run_bytes
    )


def _run_of(stack: Stack, name: str) -> float | None:
    at = _find(stack, name)
    return None if at is None else stack.characteristics[at].sequentiality.mean_run_bytes


def _slow_device(stack: Stack, at: int, healthy: Sequence[Stack]) -> list[LayerFinding]:
    """The lowest device, where it is slow by itself, one request after the other."""
    if stack.layers[at].name != "device":
        return []
    measured = stack.characteristics[at]
    service = _service_ms(stack, at)
    limit = SERVICE_MS + measured.mean_request_bytes / SERVICE_BYTES_PER_MS
    twins = [(twin, index) for twin in healthy if (index := _find(twin, "device")) is not None]
    ranges = [_service_ms(twin, index) for twin, index in twins]
    if ranges:  # requests in parallel take longer each, but less of the device's time
        limit = max(ranges) * OUTSIDE
        longest = max(twin.characteristics[index].mean_residence_us for twin, index in twins)
        if measured.mean_residence_us <= longest * OUTSIDE:
            return []
    if service <= limit or measured.requests < MIN_REQUESTS:
        return []
    label = stack.layers[at].label
    compared = f"healthy recordings: at most {max(ranges):.2f} ms" if ranges else f"limit {limit:.0f} ms"
    text = (
        f"{label.capitalize()} is slow: {service:.2f} ms of its busy time a request of "
        f"{_bytes(measured.mean_request_bytes)} ({compared})."
    )
    advice = "Look at the device: errors, a rebuild, a throttle, other load; compare it with its peers."
    share = min(1.0, _busy(stack, at) / max(_busy(stack, 0), 1e-9))
    return [LayerFinding("slow", "device", at, at, text, advice, share)]


def _service_ms(stack: Stack, at: int) -> float:
    measured = stack.characteristics[at]
    return measured.concurrency.busy_seconds * 1000 / measured.requests if measured.requests else 0.0


def _busy(stack: Stack, at: int) -> float:
    return stack.characteristics[at].concurrency.busy_seconds


def _outside(stack: Stack, healthy: Sequence[Stack], known: Sequence[LayerFinding]) -> list[LayerFinding]:
    """The boundary at which residence left the range of healthy recordings, if no rule found any."""
    if not healthy or known:
        return []
    worst: tuple[float, Boundary] | None = None
    for boundary in _awaited(stack):
        names = (stack.layers[boundary.upper].name, stack.layers[boundary.lower].name)
        usual = [v for twin in healthy if (v := _held_between(twin, names)) is not None]
        held_us = held_times(stack, boundary).sum_us
        if not usual or held_us <= OUTSIDE * max(usual):
            continue
        excess = held_us - max(usual)
        if excess >= HELD_US / 2 and (worst is None or excess > worst[0]):
            worst = excess, boundary
    return [] if worst is None else [_finding_held(stack, worst[1], held_times(stack, worst[1]))]


def _find(stack: Stack, name: str) -> int | None:
    return next((at for at, layer in enumerate(stack.layers) if layer.name == name), None)


def us(value: float) -> str:
    """A time in microseconds as text."""
    return f"{value:,.0f} us" if value < 10_000 else f"{value / 1000:,.1f} ms"


def _bytes(value: float) -> str:
    if value >= 1 << 20:
        return f"{value / (1 << 20):,.1f} MiB"
    return f"{value / 1024:,.1f} KiB"
