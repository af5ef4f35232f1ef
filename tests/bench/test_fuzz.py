"""Targets of `bench.fuzz` take their examples, and changed ones, without an error that they do not say."""

import random
import sys
from types import FrameType

import pytest

from bench.fuzz.__main__ import NAMES
from bench.fuzz.targets import TARGETS
from tests.house.test_readers import ROWS
from tests.support.darshan import skip_without_darshan

CHANGED = 60
TOKENS = (
    *(b"0", b"-1", b"1e308", b"1e999999999999999999", b"nan", b"inf", b"9223372036854775808"),
    *(b"\x00", b"\xff", b"{}", b"[]", b"null", b'""', b"|", b";", b"\n"),
)


def changed(example: bytes, chance: random.Random) -> bytes:
    """An example with a few bytes changed, left out, repeated, or in whose place an odd value stands."""
    data = bytearray(example)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del data[at : at + chance.randint(1, 30)]
        elif kind == 2:
            begin = chance.randrange(len(data) + 1)
            data[at:at] = data[begin : begin + 60]
        else:
            end = at
            while end < len(data) and chr(data[end]).isalnum():
                end += 1
            data[at:end] = chance.choice(TOKENS)
    return bytes(data)


def test_the_command_knows_all_targets() -> None:
    assert sorted(NAMES) == sorted(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_examples_and_changed_ones(name: str) -> None:
    if name == "records of Darshan":
        skip_without_darshan()
    target, chance = TARGETS[name], random.Random(name)
    seeds = target.seeds or (b"x",)
    for example in target.seeds:
        target.run(example)
    for _ in range(CHANGED):
        target.run(changed(chance.choice(seeds), chance))


NOT_FUZZED = {"activity_file.py"}  # sadf reads these files


def test_every_reader_is_run_by_a_target() -> None:
    """Readers of docs/architecture.md, whose functions the examples of the targets call."""
    skip_without_darshan()
    readers = {reader for _, reader, _, _ in ROWS}
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        for target in TARGETS.values():
            for example in target.seeds or (b"x" * 300,):
                target.run(example)
    finally:
        sys.setprofile(None)
    called = {reader for reader in readers if any(name.endswith(f"/{reader}") for name in seen)}
    assert {reader.rpartition("/")[2] for reader in readers - called} == NOT_FUZZED
