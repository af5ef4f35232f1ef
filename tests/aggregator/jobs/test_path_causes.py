"""First causes of slow jobs at a site with forwarders, from its counters to the stored verdict."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from laggard_aggregator.cli.main import main
from laggard_aggregator.jobs.access.visible_job import VisibleJob
from laggard_aggregator.jobs.verdict.analysis.cause_ranking import Neighbour, SlowPhase, ranked_causes
from laggard_aggregator.jobs.verdict.evidence.neighbours import PathState
from laggard_aggregator.jobs.verdict.evidence.path_parts import PathPart, RunPath
from laggard_aggregator.web.app import make_app
from tests.aggregator.web.test_jobs_access import acting
from tests.support.builders import live_status
from tests.support.builders.forwarder_site import (
    ADMIN,
    FORWARDERS,
    MDTS,
    META_US,
    MIB,
    MOUNT_US,
    NODES,
    OST_US,
    OSTS,
    RPC_US,
    ForwarderSite,
    Work,
)

RUNS = 7
MINUTES = 30
MINE, THEIRS = NODES["fwd-1"][:2], NODES["fwd-2"]
USUAL = Work()


class Scene:
    """Six runs of a job with 5 minutes of writing each and one that takes 15, half an hour apart.

    `runs` of them in all, of which the last `slow_runs` take so long.

    Jobs behind the other forwarders do the same all the time; they meet the same servers.
    """

    def __init__(
        self,
        folder: Path,
        slow: Work,
        nodes: tuple[str, ...] = MINE,
        *,
        shared: bool | None = None,
        metadata: int = USUAL.operations,
        slow_node: str = "",
        has_job_stats: bool = True,
        runs: int = RUNS,
        slow_runs: int = 1,
    ) -> None:
        self.site = ForwarderSite(folder, runs * MINUTES, has_job_stats)
        self.runs, self.first = runs, (runs - slow_runs) * MINUTES
        for run in range(runs):
            first, is_slow = run * MINUTES, run >= runs - slow_runs
            job = self.site.job(100 + run, nodes, first, first + 25)
            if is_slow:
                third = replace(slow, writes=slow.writes // 3, operations=slow.operations // 3)
                for node in nodes:
                    own = replace(third, node_extra_us=53_000) if node == slow_node else third
                    self.site.works([node], first + 5, first + 20, own, 100 + run)
            else:
                usual = replace(USUAL, operations=metadata)
                self.site.works(nodes, first + 5, first + 10, usual, 100 + run)
            if shared is not None:
                self.site.traced(job, nodes, first + 5, shared=shared and is_slow)
        same = replace(USUAL, osts=OSTS)
        for at, forwarder in enumerate(FORWARDERS[1:], 2):
            behind = NODES[forwarder]
            other = self.site.job(1000 * at, behind, 0, runs * MINUTES, user="eve", application="steady")
            self.site.works(behind, 0, self.first, same, 1000 * at)
            now = replace(same, ost_us=slow.ost_us, meta_us=slow.meta_us)
            self.site.works(behind, self.first, runs * MINUTES, now, 1000 * at)
            if shared is not None:
                self.site.traced(other, behind, 5, shared=False)

    def beside(self, number: int, nodes: tuple[str, ...], work: Work, run: int = RUNS - 1) -> dict[str, Any]:
        """A job of another user on `nodes` during a run."""
        first = run * MINUTES
        job = self.site.job(number, nodes, first, first + 25, user="otto", application="other")
        self.site.works(nodes, first, first + 25, work, number)
        return job

    def verdict(self) -> VisibleJob:
        return self.site.judge()[str(100 + self.runs - 1)]


def causes(job: VisibleJob) -> list[tuple[str, str]]:
    """Kind and cause of the findings, without advice."""
    assert job["verdict"] == "slow", job["sentence"]
    kinds = ("straggler", "slow component", "neighbour", "own change")
    return [(each["kind"], each["cause"]) for each in job["findings"] if each["kind"] in kinds]


def test_nothing_on_the_path_is_no_cause(tmp_path: Path) -> None:
    job = Scene(tmp_path, USUAL).verdict()
    assert causes(job) == []
    assert job["sentence"].endswith("; no cause is known")


def test_a_forwarder_that_is_slow_while_its_osts_are_not_is_the_cause(tmp_path: Path) -> None:
    slow = replace(USUAL, mount_us=32_000, rpc_us=20_000)
    job = Scene(tmp_path, slow).verdict()
    assert causes(job) == [("slow component", "fwd-1")]
    assert "fwd-1 was slow in this job: its writes took 2.7 times" in job["sentence"]


def test_a_verdict_that_is_asked_for_knows_the_forwarders(tmp_path: Path) -> None:
    job = Scene(tmp_path, replace(USUAL, mount_us=32_000, rpc_us=20_000)).verdict()
    served_by = {node: name for name, nodes in NODES.items() for node in nodes}
    app = acting(make_app(live_status.site(), tmp_path, served_by=served_by), ADMIN)
    path = f"/api/v1/jobs/{job['job']}?slow_components=laggard"

    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://l") as client:
            return await client.get(path)

    (answer,) = asyncio.run(asked()).json()["jobs"]
    assert "2.7 times as long as those of other forwarders" in answer["sentence"]


def test_a_command_knows_the_forwarders_of_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Scene(tmp_path, replace(USUAL, mount_us=32_000, rpc_us=20_000)).verdict()
    asked = ["job", job["job"], "--archive", str(tmp_path), "--slow-components", "laggard"]
    assert main(asked) == 0
    assert "2.7 times as long as those of other forwarders" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("has_job_stats", [True, False])
def test_a_slow_ost_is_the_cause_and_no_forwarder(tmp_path: Path, has_job_stats: bool) -> None:
    slow = replace(USUAL, ost_us={OSTS[0]: 6 * OST_US}, mount_us=MOUNT_US + 20_000)
    job = Scene(tmp_path, slow, has_job_stats=has_job_stats).verdict()
    assert causes(job) == [("slow component", OSTS[0])]


def test_a_slow_forwarder_with_smaller_requests_than_usual_is_the_cause(tmp_path: Path) -> None:
    """Beside earlier runs another job wrote large requests through the forwarder, of 80 ms each.

    It hardly does any more: the mean of all requests is half of the usual, and each kind takes three times as
    long.
    """
    site = ForwarderSite(tmp_path, RUNS * MINUTES)
    small, large = (
        Work(writes=600, size=65_536, mount_us=4_000),
        Work(writes=600, size=16 * MIB, mount_us=80_000),
    )
    slow = replace(small, writes=200, mount_us=3 * small.mount_us)
    for run in range(RUNS):
        first, is_last = run * MINUTES, run == RUNS - 1
        site.job(100 + run, MINE, first, first + 25)
        site.works(MINE, first + 5, first + (20 if is_last else 10), slow if is_last else small, 100 + run)
        site.job(4350 + run, NODES["fwd-1"][2:], first, first + 25, user="otto", application="other")
        beside = replace(large, writes=20, mount_us=3 * large.mount_us) if is_last else large
        site.works(NODES["fwd-1"][2:], first, first + 25, beside, 4350 + run)
    job = site.judge()[str(100 + RUNS - 1)]
    assert causes(job) == [("slow component", "fwd-1")]


def test_runs_that_were_slow_themselves_are_not_the_usual(tmp_path: Path) -> None:
    """With five of the ten latest runs as slow as this one its forwarder would be as ever."""
    slow = replace(USUAL, mount_us=32_000, rpc_us=20_000)
    job = Scene(tmp_path, slow, runs=11, slow_runs=5).verdict()
    assert causes(job) == [("slow component", "fwd-1")]


def test_a_slow_forwarder_of_others_is_innocent(tmp_path: Path) -> None:
    """Only the latencies on the job's own path are its causes."""
    scene = Scene(tmp_path, USUAL)
    first = scene.first
    scene.site.works(NODES["fwd-3"], first + 5, first + 20, replace(USUAL, mount_us=60_000, osts=OSTS[4:]))
    assert causes(scene.verdict()) == []


SLOW_FORWARDER = replace(USUAL, mount_us=3 * MOUNT_US, rpc_us=2 * RPC_US)
FLOOD = Work(writes=0, operations=300_000, osts=(), meta_us=5 * META_US)


@pytest.mark.parametrize("has_job_stats", [True, False])
def test_a_flood_of_a_job_on_the_mdt_is_the_cause(tmp_path: Path, has_job_stats: bool) -> None:
    slow = replace(USUAL, operations=6000, meta_us=5 * META_US)
    scene = Scene(tmp_path, slow, metadata=6000, has_job_stats=has_job_stats)
    scene.beside(4357, NODES["fwd-4"][:2], FLOOD)
    job = scene.verdict()
    assert [kind for kind, _ in causes(job)] == ["neighbour"]
    assert (
        "scratch-MDT0000 was 5.0 times slower than usual: job 4357 of otto ran with 10,000" in job["sentence"]
    )


def test_a_flood_is_the_cause_where_nodes_have_no_forwarder(tmp_path: Path) -> None:
    """Clients of Lustre of their own, and no `job_stats`: the targets of a job are those of its clients."""
    slow = replace(USUAL, operations=6000, meta_us=5 * META_US)
    scene = Scene(tmp_path, slow, ("lx-1", "lx-2"), metadata=6000, has_job_stats=False)
    scene.beside(4357, ("lx-3", "lx-4"), FLOOD)
    job = scene.verdict()
    assert [kind for kind, _ in causes(job)] == ["neighbour"]
    assert (
        "job 4357 of otto ran with 10,000 metadata operations a second on scratch-MDT0000" in job["sentence"]
    )


def test_a_flood_on_another_mdt_is_innocent(tmp_path: Path) -> None:
    scene = Scene(tmp_path, USUAL)
    scene.beside(4357, NODES["fwd-4"][:2], replace(FLOOD, mdt=MDTS[1]))
    assert causes(scene.verdict()) == []


def test_a_flood_that_slows_no_metadata_is_innocent(tmp_path: Path) -> None:
    scene = Scene(tmp_path, USUAL)
    scene.beside(4357, NODES["fwd-4"][:2], replace(FLOOD, meta_us=META_US))
    assert causes(scene.verdict()) == []


def test_requests_of_a_neighbour_are_the_cause_and_the_ost_is_not_ill(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(USUAL, ost_us={OSTS[0]: 5 * OST_US}, mount_us=MOUNT_US + 4 * OST_US // 2))
    small = Work(writes=270_000, size=4096, osts=OSTS[:1], ost_us={OSTS[0]: 5 * OST_US})
    scene.beside(4357, NODES["fwd-4"][:2], small)
    job = scene.verdict()
    assert [kind for kind, _ in causes(job)] == ["neighbour"]
    assert (
        "scratch-OST0000 was 5.0 times slower than usual: job 4357 of otto ran with 9,000 requests"
        in job["sentence"]
    )


def test_small_requests_on_another_ost_that_take_as_long_as_large_ones_do_not_clear_a_neighbour(
    tmp_path: Path,
) -> None:
    """A request of 4 KiB takes there what one of 1 MiB usually does: whether it is slower is unknown."""
    scene = Scene(tmp_path, replace(USUAL, ost_us={OSTS[0]: 5 * OST_US}, mount_us=MOUNT_US + 4 * OST_US // 2))
    small = Work(writes=540_000, size=4096, osts=(OSTS[0], OSTS[3]), ost_us={OSTS[0]: 5 * OST_US})
    scene.beside(4357, NODES["fwd-4"][:2], small)
    assert [kind for kind, _ in causes(scene.verdict())] == ["neighbour"]


def test_as_many_requests_on_an_ost_with_fewer_bytes_do_not_clear_a_neighbour(tmp_path: Path) -> None:
    """As many requests go to an OST that is as ever; on the slow one others write twice as many bytes."""
    scene = Scene(tmp_path, replace(USUAL, ost_us={OSTS[0]: 5 * OST_US}, mount_us=MOUNT_US + 4 * OST_US // 2))
    small = Work(writes=270_000, size=256, osts=OSTS[3:4])
    for run in range(RUNS):
        is_last = run == RUNS - 1
        scene.beside(4300 + run, NODES["fwd-2"][2:], small, run)
        large = Work(writes=120, osts=OSTS[:1], ost_us={OSTS[0]: 5 * OST_US} if is_last else {})
        scene.beside(4330 + run, NODES["fwd-3"][:1], large, run)
    other = scene.beside(
        4357, NODES["fwd-4"][:2], replace(small, osts=OSTS[:1], ost_us={OSTS[0]: 5 * OST_US})
    )
    assert causes(scene.verdict()) == [("neighbour", other["job_key"])]


def test_large_requests_of_a_neighbour_do_not_hide_that_an_ost_is_slow(tmp_path: Path) -> None:
    """At the OST a request takes longer and a byte does not.

    Those of the job's forwarder, of the usual size, take 5 times as long.
    """
    slow_osts = dict.fromkeys(OSTS[:2], 5 * OST_US)
    scene = Scene(tmp_path, replace(USUAL, ost_us=slow_osts, mount_us=MOUNT_US + 4 * OST_US))
    large = Work(writes=120, size=16 * MIB, osts=OSTS[:2], ost_us=dict.fromkeys(OSTS[:2], 8 * OST_US))
    other = scene.beside(4357, NODES["fwd-4"][:2], large)
    assert causes(scene.verdict()) == [("neighbour", other["job_key"])]


def test_requests_on_an_ost_that_is_as_ever_are_innocent(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SLOW_FORWARDER)
    scene.beside(4357, NODES["fwd-4"][:2], Work(writes=270_000, size=4096, osts=OSTS[:1]))
    assert causes(scene.verdict()) == [("slow component", "fwd-1")]


def test_writers_of_one_file_behind_the_same_forwarder_are_the_cause(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SLOW_FORWARDER, shared=False)
    own = replace(SLOW_FORWARDER, writes=120, osts=OSTS[2:])
    for run in range(RUNS):
        other = scene.beside(
            4350 + run, NODES["fwd-1"][2:], own if run == RUNS - 1 else replace(USUAL, writes=120), run
        )
        scene.site.traced(other, NODES["fwd-1"][2:], run * MINUTES + 5, shared=run == RUNS - 1)
    job = scene.verdict()
    assert [kind for kind, _ in causes(job)] == ["neighbour"]
    assert (
        "job 4356 of otto ran with 4.2 MB a second into one file of all its processes on fwd-1"
        in job["sentence"]
    )


def test_writers_of_one_file_who_hold_the_threads_of_the_forwarder_are_the_cause(tmp_path: Path) -> None:
    """Requests wait in its queue, and take as long as ever once they have a thread."""
    slow = replace(USUAL, node_extra_us=60_000, queue=4)
    scene, nodes = Scene(tmp_path, slow, shared=False), NODES["fwd-1"][2:]
    for run in range(RUNS):
        is_last = run == RUNS - 1
        other = scene.beside(4350 + run, nodes, replace(slow if is_last else USUAL, writes=120), run)
        scene.site.traced(other, nodes, run * MINUTES + 5, shared=is_last)
    job = scene.verdict()
    assert causes(job) == [("neighbour", other["job_key"])]
    assert "into one file of all its processes on fwd-1" in job["sentence"]


def test_a_queue_that_is_known_of_one_run_alone_is_no_slowness(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(USUAL, queue=4))
    for (source, _, _), rises in scene.site.rises.items():
        if source == "lwfs":
            for name in rises:
                rises[name][: scene.first] = 0
    assert causes(scene.verdict()) == []


def test_writers_of_one_file_behind_another_forwarder_are_innocent(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SLOW_FORWARDER, shared=False)
    for run in range(RUNS):
        other = scene.beside(4350 + run, NODES["fwd-2"][2:], replace(USUAL, osts=OSTS[2:]), run)
        scene.site.traced(other, NODES["fwd-2"][2:], run * MINUTES + 5, shared=run == RUNS - 1)
    assert causes(scene.verdict()) == [("slow component", "fwd-1")]


def test_writers_of_one_file_with_a_small_part_of_the_bytes_are_innocent(tmp_path: Path) -> None:
    """Of 3.4 MiB a second through the slow forwarder theirs are 1.1."""
    scene = Scene(tmp_path, SLOW_FORWARDER, NODES["fwd-1"][:1], shared=False)
    two, last = NODES["fwd-1"][1:3], NODES["fwd-1"][3:]
    for run in range(RUNS):
        work = replace(SLOW_FORWARDER if run == RUNS - 1 else USUAL, writes=120)
        plain = scene.beside(4350 + run, last, work, run)
        scene.site.traced(plain, last, run * MINUTES + 5, shared=False)
    writers = scene.beside(4370, two, replace(SLOW_FORWARDER, writes=33))
    scene.site.traced(writers, two, scene.first + 5, shared=True)
    assert causes(scene.verdict()) == [("slow component", "fwd-1")]


def test_writers_of_one_file_with_most_of_the_requests_under_way_are_the_cause(tmp_path: Path) -> None:
    """They have 40 % of the bytes, and each of their requests holds the forwarder three times as long."""
    scene = Scene(tmp_path, SLOW_FORWARDER, NODES["fwd-1"][:1], shared=False)
    two, last = NODES["fwd-1"][1:3], NODES["fwd-1"][3:]
    for run in range(RUNS):
        work = replace(SLOW_FORWARDER, writes=100) if run == RUNS - 1 else replace(USUAL, writes=120)
        plain = scene.beside(4350 + run, last, work, run)
        scene.site.traced(plain, last, run * MINUTES + 5, shared=False)
    long = replace(SLOW_FORWARDER, writes=40, mount_us=3 * SLOW_FORWARDER.mount_us)
    writers = scene.beside(4370, two, long)
    scene.site.traced(writers, two, scene.first + 5, shared=True)
    assert causes(scene.verdict()) == [("neighbour", writers["job_key"])]


def test_writers_of_one_file_that_wait_for_its_lock_do_not_hold_their_ost(tmp_path: Path) -> None:
    """They have 40 % of the bytes on an OST that is ill; most of their time is the wait for the lock."""
    slow = replace(USUAL, ost_us={OSTS[0]: 6 * OST_US}, mount_us=MOUNT_US + 20_000)
    scene, nodes = Scene(tmp_path, slow, shared=False, has_job_stats=False), NODES["fwd-3"][:2]
    for run in range(RUNS):
        is_last = run == RUNS - 1
        work = replace(slow, mount_us=40 * MOUNT_US) if is_last else USUAL
        writers = scene.beside(4370 + run, nodes, replace(work, writes=50, osts=OSTS[:1]), run)
        scene.site.traced(writers, nodes, run * MINUTES + 5, shared=is_last)
    assert causes(scene.verdict()) == [("slow component", OSTS[0])]


def test_writers_of_one_file_on_an_ost_that_another_job_loads_more_are_not_the_cause(tmp_path: Path) -> None:
    """They have 70 % of the bytes on the slow OST, and the other job nearly all of the requests."""
    slow = replace(USUAL, ost_us={OSTS[0]: 5 * OST_US}, mount_us=MOUNT_US + 4 * OST_US // 2)
    scene = Scene(tmp_path, slow, shared=False)
    small = replace(slow, writes=54_000, size=4096, osts=OSTS[:1])
    other = scene.beside(4357, NODES["fwd-4"][:2], small)
    scene.site.traced(other, NODES["fwd-4"][:2], scene.first + 5, shared=False)
    writers = scene.beside(4370, NODES["fwd-3"][:2], replace(slow, writes=600, osts=OSTS[:1]))
    scene.site.traced(writers, NODES["fwd-3"][:2], scene.first + 5, shared=True)
    job = scene.verdict()
    assert causes(job)[0] == ("neighbour", other["job_key"])
    assert "into one file" not in " ".join(finding["text"] for finding in job["findings"])


def test_a_load_that_is_less_than_the_jobs_own_was_is_innocent(tmp_path: Path) -> None:
    """Its forwarder had 300 operations a second in earlier runs, and now 160, the neighbour's with them."""
    slow = replace(USUAL, operations=6000, mount_extra_meta_us=9 * META_US)
    scene = Scene(tmp_path, slow, NODES["fwd-1"][:3], metadata=6000)
    scene.beside(4357, NODES["fwd-1"][3:], replace(slow, operations=3600))
    assert causes(scene.verdict()) == [("slow component", "fwd-1")]


def test_a_load_that_was_beside_earlier_runs_on_their_forwarder_is_innocent(tmp_path: Path) -> None:
    """Two of six healthy runs had the same reader behind their forwarder, which was another one."""
    site = ForwarderSite(tmp_path, RUNS * MINUTES)
    reader = Work(writes=6_000, size=4096, osts=OSTS[2:4], mount_us=4_000)
    for run in range(RUNS):
        first, is_last = run * MINUTES, run == RUNS - 1
        behind = NODES["fwd-1" if is_last else "fwd-2"]
        slow = replace(SLOW_FORWARDER, writes=20, operations=20)
        site.job(100 + run, behind[:2], first, first + 25)
        site.works(
            behind[:2], first + 5, first + (20 if is_last else 10), slow if is_last else USUAL, 100 + run
        )
        if run in (1, 3, RUNS - 1):
            site.job(4350 + run, behind[2:], first, first + 25, user="otto", application="other")
            work = replace(reader, mount_us=3 * reader.mount_us) if is_last else reader
            site.works(behind[2:], first, first + 25, work, 4350 + run)
    job = site.judge()[str(100 + RUNS - 1)]
    assert causes(job) == [("slow component", "fwd-1")]


def test_one_file_for_all_processes_is_the_jobs_own_change(tmp_path: Path) -> None:
    job = Scene(tmp_path, replace(USUAL, mount_us=2 * MOUNT_US), shared=True).verdict()
    assert causes(job) == [("own change", "N-1 (one file of all processes)")]
    assert "100% of its bytes were N-1 (one file of all processes)" in job["sentence"]


def test_an_ost_that_alone_is_slow_is_named_beside_the_jobs_own_change(tmp_path: Path) -> None:
    slow = replace(USUAL, ost_us={OSTS[0]: 6 * OST_US}, mount_us=MOUNT_US + 20_000)
    job = Scene(tmp_path, slow, shared=True).verdict()
    own = ("own change", "N-1 (one file of all processes)")
    assert set(causes(job)) == {own, ("slow component", OSTS[0])}


def test_a_flood_of_a_login_node_is_the_cause(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(USUAL, operations=6000, meta_us=5 * META_US), metadata=6000)
    scene.site.works(["login-2"], scene.first, scene.first + 25, FLOOD)
    scene.site.works(["login-1"], 0, RUNS * MINUTES, Work(writes=6, osts=OSTS[:1]))
    job = scene.verdict()
    assert causes(job) == [("neighbour", "login-2")]
    assert (
        "login-2, which has no job, ran with 5,000 metadata operations a second on scratch-MDT0000"
        in job["sentence"]
    )


def test_writes_are_not_blamed_on_a_flood_on_their_mdt(tmp_path: Path) -> None:
    """It slows the one open a second that the job does, which does not wait for it as it writes."""
    slow = replace(USUAL, ost_us={OSTS[0]: 6 * OST_US}, mount_us=MOUNT_US + 20_000, meta_us=5 * META_US)
    scene = Scene(tmp_path, slow)
    scene.site.works(["login-2"], scene.first, scene.first + 25, FLOOD)
    assert causes(scene.verdict()) == [("slow component", OSTS[0])]


def test_writers_of_one_file_whose_other_osts_are_as_ever_are_innocent(tmp_path: Path) -> None:
    slow = replace(USUAL, ost_us={OSTS[0]: 6 * OST_US}, mount_us=MOUNT_US + 20_000)
    scene = Scene(tmp_path, slow, shared=False)
    other = scene.beside(4357, NODES["fwd-4"][:2], replace(slow, osts=(OSTS[0], OSTS[3])))
    scene.site.traced(other, NODES["fwd-4"][:2], scene.first + 5, shared=True)
    assert causes(scene.verdict()) == [("slow component", OSTS[0])]


def test_requests_of_a_quarter_of_the_usual_size_on_an_ost_that_is_as_ever_clear_their_writer(
    tmp_path: Path,
) -> None:
    """They may be 4 times slower there, and are 30 times slower on the OST that is ill."""
    slow = replace(USUAL, ost_us={OSTS[0]: 30 * OST_US}, mount_us=MOUNT_US + 29 * OST_US // 2)
    scene = Scene(tmp_path, slow, shared=False)
    work = replace(slow, writes=4 * slow.writes, size=slow.size // 4, osts=(OSTS[0], OSTS[3]))
    other = scene.beside(4357, NODES["fwd-4"][:2], work)
    scene.site.traced(other, NODES["fwd-4"][:2], scene.first + 5, shared=True)
    assert causes(scene.verdict()) == [("slow component", OSTS[0])]


def test_an_ost_that_only_others_behind_the_forwarder_use_is_innocent(tmp_path: Path) -> None:
    """No server tells whose requests they are, but they come when the other job works."""
    scene = Scene(tmp_path, USUAL, has_job_stats=False)
    slow = replace(USUAL, osts=OSTS[4:5], ost_us={OSTS[4]: 6 * OST_US})
    for run in range(RUNS):
        nodes, first = NODES["fwd-1"][2:], run * MINUTES
        scene.site.job(4350 + run, nodes, first, first + 25, user="otto", application="other")
        work = slow if run == RUNS - 1 else replace(USUAL, osts=OSTS[4:5])
        scene.site.works(nodes, first + 2, first + 12, work, 4350 + run)
    assert causes(scene.verdict()) == []


@pytest.mark.parametrize(
    ("directions", "place", "slowdown"),
    [
        (["write"], (OSTS[0], "bytes"), 6.0),
        (["write"], (MDTS[0], "operations"), 1.0),
        (["metadata"], (OSTS[0], "bytes"), 1.0),
        (["metadata", "write"], (MDTS[0], "operations"), 5.0),
        (["write"], (OSTS[1], "bytes"), 1.0),
        (["write"], ("fwd-1", "bytes"), np.nan),
        (["metadata"], ("cn-01/scratch", "operations"), np.nan),
    ],
)
def test_only_what_a_slow_direction_waits_for_may_be_slow(
    directions: list[str], place: tuple[str, str], slowdown: float
) -> None:
    """A target without a latency was not used, as others have one; of mounts and forwarders none is known."""
    parts = {
        OSTS[0]: PathPart(OSTS[0], "OST", {"write": 6.0}, 6.0, 0.0),
        MDTS[0]: PathPart(MDTS[0], "MDT", {"metadata": 5.0}, np.nan, 0.0),
    }
    state = PathState(RunPath({}, {}), parts, directions, frozenset({"fwd-1"}))
    assert state.slowdown(place) == pytest.approx(slowdown, nan_ok=True)


def test_a_slow_compute_node_is_the_cause(tmp_path: Path) -> None:
    scene = Scene(tmp_path, USUAL, NODES["fwd-1"], slow_node="cn-02")
    job = scene.verdict()
    assert causes(job) == [("slow component", "cn-02")]
    assert (
        "cn-02 was slow in this job: its writes took 5.0 times as long as on the 3 other nodes"
        in job["sentence"]
    )


def test_a_compute_node_whose_files_lie_on_a_slow_ost_is_innocent(tmp_path: Path) -> None:
    """One node of four has its files on the slow OST, and waits 5 times as long as the others."""
    slow = replace(USUAL, ost_us={OSTS[0]: 6 * OST_US}, mount_us=MOUNT_US + 20_000)
    job = Scene(tmp_path, slow, NODES["fwd-1"], slow_node="cn-02").verdict()
    assert causes(job) == [("slow component", OSTS[0])]


@pytest.mark.parametrize(
    ("others_us", "cause", "said"),
    [
        (None, "lx-2", "or scratch-OST0004, which no other client used meanwhile"),
        (RPC_US, "lx-2", "on the 3 other nodes of the job, and it carried"),
        (6 * RPC_US, OSTS[4], "scratch-OST0004 was slow in this job"),
    ],
)
def test_other_clients_of_an_ost_tell_whether_it_or_its_only_node_is_slow(
    tmp_path: Path, others_us: int | None, cause: str, said: str
) -> None:
    """A node without forwarder has its files alone on an OST, of which no server tells anything."""
    site = ForwarderSite(tmp_path, RUNS * MINUTES, has_job_stats=False, has_servers=False)
    nodes = ("lx-1", "lx-2", "lx-3", "lx-4")
    for run in range(RUNS):
        first, is_last = run * MINUTES, run == RUNS - 1
        site.job(100 + run, nodes, first, first + 25)
        own = replace(USUAL, writes=20 if is_last else 60)
        for node in nodes:
            alone = replace(own, osts=OSTS[4:5]) if node == "lx-2" else replace(own, osts=OSTS[:3])
            slow = replace(alone, mount_us=6 * MOUNT_US, rpc_us=6 * RPC_US)
            work = slow if is_last and node == "lx-2" else alone
            site.works([node], first + 5, first + (20 if is_last else 10), work, 100 + run)
        site.job(4350 + run, ["lx-9"], first, first + 25, user="otto", application="other")
        site.works(["lx-9"], first, first + 25, replace(USUAL, osts=OSTS[:4]), 4350 + run)
        if others_us:
            site.works(
                ["lx-9"], first, first + 25, replace(USUAL, osts=OSTS[4:5], rpc_us=others_us), 4350 + run
            )
    job = site.judge()[str(100 + RUNS - 1)]
    assert causes(job) == [("slow component", cause)]
    assert said in job["sentence"]


def test_a_few_metadata_operations_on_a_slow_forwarder_are_innocent(tmp_path: Path) -> None:
    """They are 24 times the usual number, and a third of all requests through it."""
    scene = Scene(tmp_path, SLOW_FORWARDER, NODES["fwd-1"][:3], has_job_stats=False)
    for run in range(RUNS):
        first, is_slow = run * MINUTES + 5, run == RUNS - 1
        work = SLOW_FORWARDER if is_slow else USUAL
        small = replace(work, writes=6_000 if is_slow else 18_000, size=65_536, operations=0)
        scene.site.works(NODES["fwd-1"][:1], first, first + (15 if is_slow else 5), small, 100 + run)
    scene.beside(4357, NODES["fwd-1"][3:], replace(SLOW_FORWARDER, writes=0, operations=3_600))
    assert causes(scene.verdict()) == [("slow component", "fwd-1")]


def test_a_load_at_which_its_component_was_as_slow_clears_nobody() -> None:
    """Two of ten earlier runs used other OSTs while this one was slow under such a load."""
    loads = np.array([42.0, 657.0, 775.0, 95.0, 170.0, 139.0, 19.0, 55.0, 2335.0, 2261.0])
    phase = SlowPhase(0.0, 600.0, 1.64)

    def named(earlier: tuple[float, ...]) -> list[str]:
        part = PathPart("OST0000", "OST", {"write": 4.5}, 4.5, 1e-6, earlier=earlier)
        state = PathState(RunPath({}, {}), {part.name: part}, ["write"])
        history = state.clearing(part.name, loads, 2067.0)
        assert set(loads[:8]) <= set(history)
        load = Neighbour("c/1", part.name, "requests", 2067.0, 130.0, history, slowdown=4.5, by_chance=1e-6)
        return [cause.name for cause in ranked_causes(phase, [], [load], [])]

    assert named((*[1.0] * 8, 4.4, 4.6)) == ["c/1"]
    assert named((1.0,) * 10) == []
    assert named((np.nan,) * 10) == []
    assert named(()) == []
