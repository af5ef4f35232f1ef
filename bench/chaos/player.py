"""Plays recorded LUNs, one of them slow without end: `python player.py FOLDER SPEED`.

It goes before all other processes where it may: counters that stand still because the machine is busy would
be LUNs that are idle.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from laggard_aggregator.demo.recording import SETTLE_SECONDS, Recording, Sample, read_recording
from laggard_aggregator.demo.replay import Replay
from laggard_aggregator.demo.site import SHIFT_SAMPLES
from laggard_common.clock import SystemClock

NODES = 6
_ONSET_SECONDS = 30.0  # of the fault, which are left out
_NICE = -10


def slow_without_end() -> Recording:
    """`NODES` LUNs of the recording, in the time in which one of them is slow; a replay repeats it."""
    whole = read_recording()
    luns = (*[lun for lun in whole.luns if lun != whole.faulty][: NODES - 1], whole.faulty)
    during = tuple(
        Sample(sample.time, {lun: sample.rows[lun] for lun in luns})
        for sample in whole.samples
        if whole.fault_start + _ONSET_SECONDS < sample.time < whole.fault_end
    )
    before = during[0].time - SETTLE_SECONDS - 1
    return replace(whole, luns=luns, samples=during, fault_start=before - 1, fault_end=before)


def replay(recording: Recording, roots: Mapping[str, Path], speed: int) -> Replay:
    """The recording in a folder for each LUN."""
    return Replay(recording, roots, speed, SystemClock(), SHIFT_SAMPLES)


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):
        os.nice(_NICE - os.nice(0))
    made = slow_without_end()
    player = replay(made, {lun: Path(sys.argv[1]) / lun for lun in made.luns}, int(sys.argv[2]))
    asyncio.run(player.run(asyncio.Event()))
