"""Samples counted by function, put in order with what happens to their processes."""

import random
from pathlib import Path

from laggard_agent.collectors.fnprofile.address_spaces import Spaces
from laggard_agent.collectors.fnprofile.cpu_sampler import SampleCounter
from laggard_agent.collectors.fnprofile.records import parse
from tests.support.builders.fnprofile import (
    KERNEL_MODE,
    comm,
    ended,
    fork,
    lost,
    mmap2,
    process,
    record,
    resolver,
    sample,
)

MAPS = "1000-2000 r-xp 00000000 08:01 7 /bin/{}\n"


def tally(procfs: Path) -> SampleCounter:
    """A shell (5) and a server (6) that were there before."""
    for pid, name in ((5, "sh"), (6, "server")):
        process(procfs, pid, name, f"/bin/{name}", MAPS.format(name))
    return SampleCounter(Spaces(procfs), resolver(procfs))


def test_one_cpu(tmp_path: Path) -> None:
    made = tally(tmp_path)
    made.add(
        [parse(sample(5, 0x1000, 1) * 3 + sample(6, 0x1010, 2, tid=60) + sample(6, 0x99, 3, KERNEL_MODE))]
    )
    assert made.counts == {"sh/sh/?": 3, "server/server/?": 1, "server/[kernel]/?": 1}
    assert made.samples == 5


def test_the_order_of_things_on_several_cpus(tmp_path: Path) -> None:
    """A shell starts a program that moves from CPU to CPU; each sample counts for what ran at that time."""
    made = tally(tmp_path)
    made.add([parse(sample(5, 0x1000, 1))])  # somebody has looked at the shell
    events = [
        (0, fork(7, 5, 10)),
        (1, sample(7, 0x1100, 11)),
        (1, comm(7, "dd", 12, executed=True)),
        (1, mmap2(7, 0x1000, 0x1000, 0, "/bin/dd", 8, 13)),
        (0, sample(7, 0x1100, 14)),
        (1, sample(7, 0x1100, 15)),
        (0, sample(6, 0x1100, 16)),
        (1, ended(7, 17)),
        (0, sample(5, 0x1100, 18)),
    ]
    made.add([parse(b"".join(data for at, data in events if at == cpu)) for cpu in (0, 1)])
    assert made.counts == {"sh/sh/?": 3, "dd/dd/?": 2, "server/server/?": 1}


def test_the_idle_task_is_nobody(tmp_path: Path) -> None:
    made = tally(tmp_path)
    made.add([parse(sample(0, 0x1000, 1, KERNEL_MODE))])
    assert (made.samples, made.counts) == (0, {})


def test_after_a_loss_everything_is_read_again(tmp_path: Path) -> None:
    """The start of another program may have been among what was lost."""
    made = tally(tmp_path)
    made.add([parse(sample(5, 0x1000, 1))])
    (tmp_path / "5/exe").unlink()
    (tmp_path / "5/exe").symlink_to("/bin/other")
    (tmp_path / "5/maps").write_text(MAPS.format("other"))
    made.add([parse(sample(5, 0x1000, 2))])
    made.resynchronize()
    made.add([parse(lost(4))])
    made.resynchronize()
    made.add([parse(sample(5, 0x1000, 3))])
    assert made.counts == {"sh/sh/?": 2, "other/other/?": 1}
    assert (made.lost, made.samples) == (4, 3)
    made.add([parse(record(5, bytes(24)) + b"1234")])
    assert (made.throttled, made.garbled) == (1, 4)


def test_however_samples_are_spread(tmp_path: Path) -> None:
    """Over CPUs and drains, of processes that change or not: the sums are the same."""
    rng = random.Random(3)
    made = tally(tmp_path)
    expected = {"sh/sh/?": 0, "server/server/?": 0}
    for _ in range(20):
        rings = [b"", b"", b""]
        for time in range(200):
            pid, cpu = rng.choice((5, 6)), rng.randrange(3)
            rings[cpu] += sample(pid, 0x1000 + rng.randrange(64), time)
            expected["sh/sh/?" if pid == 5 else "server/server/?"] += 1
            if rng.random() < 0.01:
                rings[cpu] += mmap2(pid, 0x8000, 0x1000, 0, "/lib/x", 9, time)
        made.add(map(parse, rings))
    assert made.counts == expected
