"""The record ratio of each pattern is what its definition gives, and the wire loses nothing."""

from collections import Counter
from dataclasses import replace

import pytest

from bench.iotrace import BEACON, Pattern, envelope, patterns
from laggard_agent.tools.iotrace.fold import fold
from laggard_common import wire
from laggard_common.wire.trace_codec import EventEncoder, batches
from tests.support.builders.iotrace import decoded, unfold

PATTERNS = {pattern.name: pattern for pattern in patterns()}

each = pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)


@each
def test_the_ratio_is_what_the_definition_gives(pattern: Pattern) -> None:
    assert sum(1 for _ in fold(pattern.records)) == pattern.runs


@each
def test_through_the_wire_every_record_comes_back(pattern: Pattern) -> None:
    encoder = EventEncoder()
    came = [
        record
        for batch in batches(fold(pattern.records))
        for run in decoded(wire.decode_envelope(wire.encode_envelope(envelope(encoder, batch))))
        for record in unfold(run)
    ]
    assert Counter(replace(r, time_ns=0) for r in came) == Counter(
        replace(r, time_ns=0) for r in pattern.records
    )


def test_the_promised_ratios() -> None:
    assert PATTERNS["random"].ratio == 1.0
    assert PATTERNS["sequential"].ratio >= BEACON[1]
    assert PATTERNS["checkpoint"].ratio >= BEACON[1]
    assert len(PATTERNS) >= 8


def test_the_same_seed_gives_the_same_patterns() -> None:
    assert patterns(7) == patterns(7)
    assert patterns(7) != patterns(8)
