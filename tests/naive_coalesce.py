"""Joined batches taken apart again, slowly: what an agent sends of a backlog, batch by batch."""

from dataclasses import replace

from laggard_common import wire
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import Encoder
from tests import naive_wire


def apart(envelope: Envelope) -> list[Envelope]:
    """The batches in a message, as they were before they were joined but for their epoch."""
    if envelope.kind != Kind.JOINED:
        return [envelope]
    ticks, whole = wire.split_joined(envelope)
    decoded = naive_wire.decode(whole)
    places = sorted(range(len(decoded.indexes)), key=decoded.indexes.__getitem__)
    offsets_us = [
        (read_ns - envelope.t0_ns - i * envelope.dt_ns) // 1000 for i, read_ns in enumerate(decoded.read_ns)
    ]
    found, begin = [], 0
    for number, count in enumerate(ticks):
        some = slice(begin, begin + count)
        rows = [[tuple(tick[place]) for place in places] for tick in decoded.values[some]]
        payload = Encoder(whole.codec).encode(sorted(decoded.indexes), rows, offsets_us[some])
        t0_ns = envelope.t0_ns + begin * envelope.dt_ns
        found.append(replace(whole, seq=whole.seq + number, t0_ns=t0_ns, n=count, payload=payload))
        begin += count
    return found
