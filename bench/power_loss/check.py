"""Starts aggregator and agent on a disk after a power loss, and compares with the promises."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench.power_loss.workload import CHANNEL, UNSENT, Aggregator, encoded, opened
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.notify.outbox import NAME, Outbox, QueuedMessage
from laggard_common.errors import LaggardError
from tests.support.builders.site import START
from tests.support.clock import HandClock

SECOND = 1_000_000_000


def problems(folder: Path, promises: dict[str, Any], appended: int) -> list[str]:
    """The faults in `folder` after a start; empty when it is as promised.

    `promises`: the last value of each kind. `appended`: batches given to the spool so far, at most.
    """
    try:
        return [
            *_of_aggregator(folder, promises),
            *_of_spool(folder, promises, appended),
            *_of_outbox(folder, promises),
        ]
    except (LaggardError, OSError, ValueError, KeyError, AssertionError) as exc:
        return [f"{type(exc).__name__}: {exc}"]


def _of_aggregator(folder: Path, promises: dict[str, Any]) -> list[str]:
    found: list[str] = []
    aggregator = Aggregator(folder, HandClock(START + 10**6 * SECOND))
    recovery, machine = aggregator.recovery, aggregator.machine
    if recovery.lost or recovery.damaged:
        found.append(f"state: {recovery.lost} lost, {recovery.damaged} damaged")
    received = {
        (node, stream.hex(), source): state.received
        for node, sources in machine.admission._sources.items()
        for source, streams in sources.items()
        for stream, state in streams.streams.items()
    }
    acked = {
        (node, stream, source): ranges
        for node, acks in promises.get("acked", {}).items()
        for stream, source, ranges in acks
    }
    for key, ranges in acked.items():
        lacking = [s for low, high in ranges for s in range(low, high + 1) if s not in received.get(key, ())]
        if lacking:
            found.append(f"state: {key[0]} lacks acknowledged {lacking}")
    asyncio.run(_flush(aggregator))
    recovery.close()
    archived = Counter(
        (batch.schema.node, batch.stream.hex(), batch.seq)
        for _, batch in ArchiveReader(aggregator.archive_folder).batches()
    )
    wanted = {
        (node, stream, seq)
        for (node, stream, _), ranges in acked.items()
        for low, high in ranges
        for seq in range(low, high + 1)
    }
    lost = sorted(wanted - archived.keys())
    if lost:
        found.append(f"archive: {len(lost)} acknowledged batches are not there, such as {lost[0]}")
    twice = [key for key, times in archived.items() if times > 1]
    if twice:
        found.append(f"archive: {len(twice)} batches are there twice, such as {twice[0]}")
    if recovery_damage := aggregator.archive.damaged:
        found.append(f"archive: {recovery_damage} damaged files")
    restarts = aggregator.decided.restarts.get("luns", set())
    number = max((int(name.rpartition("-")[2]) for name in restarts), default=0)
    if number < promises.get("decided", 0):
        found.append(f"decisions: {number} is the last, {promises['decided']} was confirmed")
    return found


async def _flush(aggregator: Aggregator) -> None:
    await aggregator.start()
    if not await aggregator.archive.write(flush=True):
        raise ValueError(aggregator.archive.failure)


def _of_spool(folder: Path, promises: dict[str, Any], appended: int) -> list[str]:
    found: list[str] = []
    spool = opened(folder, 99, "boot-2")
    seen: dict[bytes, set[int]] = {}
    spool.rewind()
    while stored := spool.next_backlog():
        number = (stored.envelope.t0_ns - 10**18) // 10**9
        if stored.envelope.payload != number.to_bytes(4, "big") * 20 or number >= appended:
            found.append(f"spool: batch {number} differs from the stored one")
        if stored.envelope.seq in seen.setdefault(stored.envelope.stream, set()):
            found.append(f"spool: sequence number {stored.envelope.seq} is there twice")
        seen[stored.envelope.stream].add(stored.envelope.seq)
    if spool.in_memory:
        found.append("spool: cannot be used")
    after = spool.append(encoded(appended))
    if after is None or (after.envelope.stream.hex(), after.envelope.seq) in promises.get("stored", ()):
        found.append("spool: a sequence number is given to other data")
    spool.close()
    return found


def _of_outbox(folder: Path, promises: dict[str, Any]) -> list[str]:
    found: list[str] = []
    outbox = Outbox(folder / "state", START)
    if not (folder / "state" / NAME).with_suffix(".damaged").exists():
        waiting = {int(each.id): each.message for each in outbox.waiting(CHANNEL)}
        queued, sent = promises.get("queued", set()), promises.get("sent", set())
        if len(sent) + UNSENT in queued:
            waiting.setdefault(len(sent), b"")  # its outcome may be written, and not yet promised
        if lost := queued - waiting.keys() - sent:
            found.append(f"outbox: messages {sorted(lost)} are lost")
        if again := sent & waiting.keys():
            found.append(f"outbox: messages {sorted(again)} would be sent again")
        if any(message not in (encoded(number).payload * 50, b"") for number, message in waiting.items()):
            found.append("outbox: a message differs from the queued one")
        outbox.queue(CHANNEL, QueuedMessage("next", START, ("ops",), b"next"))
    else:
        found.append("outbox: the file is damaged")
    outbox.close()
    return found


def last_promises(lines: bytes) -> dict[str, Any]:
    """The last value of each kind; the last acknowledgement of each node; all `stored`, `queued`, `sent`."""
    found: dict[str, Any] = {}
    for line in lines.splitlines():
        kind, value = json.loads(line)
        if kind == "acked":
            found.setdefault("acked", {}).update(value)
        elif kind == "stored":
            found.setdefault("stored", set()).add(tuple(value))
        elif kind in ("queued", "sent"):
            found.setdefault(kind, set()).add(value)
        else:
            found[kind] = value
    return found
