from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from laggard_aggregator.ingest.decode import Decoder
from laggard_common.errors import WireError
from tests import naive_wire
from tests.support.builders.wire_batches import MadeBatch, batches


@given(batches())
def test_the_fast_decoder_says_what_the_naive_one_says(made: MadeBatch) -> None:
    envelope = made.envelope()
    naive = naive_wire.decode(envelope)
    fast = Decoder().decode(envelope)
    n, c, f = fast.values.shape
    assert fast.indexes.tolist() == naive.indexes
    assert fast.idle == naive.idle
    assert fast.read_ns.tolist() == naive.read_ns
    assert fast.tick_ns.tolist() == [envelope.t0_ns + i * envelope.dt_ns for i in range(n)]
    present = np.ones((c, f), dtype=bool) if fast.present is None else fast.present
    lanes = fast.values.view(np.uint64)
    found = [
        [[int(lanes[t, i, j]) if present[i, j] else None for j in range(f)] for i in range(c)]
        for t in range(n)
    ]
    assert found == naive.values


@given(batches())
def test_a_payload_cut_short_or_made_longer_is_refused(made: MadeBatch) -> None:
    envelope = made.envelope()
    for payload in (envelope.payload[:-1], envelope.payload + b"\0", b""):
        broken = replace(envelope, payload=payload)
        with pytest.raises(WireError):
            Decoder().decode(broken)
