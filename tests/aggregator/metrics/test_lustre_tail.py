"""A target whose disk stops now and then: its mean is as its peers', its histogram of times is not."""

from pathlib import Path

import numpy as np

from laggard_agent.collectors.lustre.table_specs import SLOW
from tests.support.agent_messages import AgentMessages
from tests.support.builders.lustre import Watched, trees
from tests.support.live_scrapes import live_scrapes

START = 1_764_000_000
TICK_SECONDS, TICKS, SINCE = 15, 480, 160
TARGETS, ILL = 6, 2
BINS = [2**power for power in range(12)]
GROUP = """
[[group]]
name = "tails"
source = "lustre_brw"
components = ".*"
metrics = ["slow_reads"]
"""


def brw_stats(reads: "np.ndarray", writes: "np.ndarray") -> str:
    """The file, with the bins from the first to the last that counted, as Lustre prints it."""
    counted = np.flatnonzero(reads + writes)
    lines = [f"{BINS[at]}:\t\t {reads[at]:10d}   0   0   | {writes[at]:10d}   0   0\n" for at in counted]
    head = "                           read      |     write\n"
    columns = "I/O time (1/1000s)     ios   % cum % |  ios         % cum %\n"
    return f"snapshot_time:         1571000100.223456789 (secs.nsecs)\n\n{head}{columns}{''.join(lines)}\n"


def test_slow_reads_of_one_target_raise_its_alarm_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    usual = np.array([0, 0, 0.2, 0.4, 0.3, 0.0795, 0.015, 0.005, 0.0005, 0, 0, 0])
    tail = np.array([0, 0, 0.4455, 0.3465, 0.1485, 0.0495, 0, 0, 0, 0.01, 0, 0])
    middles = np.array(BINS) * 0.75
    assert abs(np.log(usual @ middles / (tail @ middles))) < 0.06
    counts = np.zeros((TARGETS, 2, len(BINS)), dtype=np.int64)
    files = [tmp_path / f"proc/fs/lustre/obdfilter/scratch-OST{ost:04x}/brw_stats" for ost in range(TARGETS)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("")
    watched = Watched(trees(tmp_path))
    live = live_scrapes("http://127.0.0.1:1", START, more=GROUP)
    agent = AgentMessages("oss-1", "lustre_brw", TICK_SECONDS * 10**9)
    for tick in range(TICKS):
        for ost in range(TARGETS):
            shares = tail if ost == ILL and tick >= SINCE else usual
            counts[ost] += random.multinomial(random.poisson(900), shares / shares.sum(), size=2)
            files[ost].write_text(brw_stats(counts[ost, 0], counts[ost, 1]))
        at = START + tick * TICK_SECONDS
        watched.clock.wall = (at - 1) * 10**9
        reading = watched.sample().readings.get("lustre_brw")
        live.deliver(at, [] if reading is None else agent.messages(at * 10**9, reading))
    assert SLOW > 1  # a target is read in one of so many samples
    assert list(live.raised) == [f"scratch-OST{ILL:04x}"]
    assert live.events[0][0] > START + SINCE * TICK_SECONDS
