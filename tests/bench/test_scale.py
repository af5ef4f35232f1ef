"""The load generator's messages are those of agents, and a small site goes through it whole."""

import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.scale.batches import LOADS, Batches
from bench.scale.fleet import Crowd
from bench.scale.shapes import SECOND, TAIHULIGHT, Shape, taihulight
from laggard_agent.sampling.batcher import last_tick
from laggard_aggregator.ingest.decode import Decoder
from laggard_common.wire import Envelope, Kind, codec
from tests.support.processes import run_command, started
from tests.support.wait import LIMIT_SECONDS

SHAPES = (Shape("compute", 9, 1, 8, 10), Shape("storage", 5, 3, 17, 5))


def decoded(shape: Shape, payload: bytes) -> NDArray[np.int64]:
    envelope = Envelope(
        Kind.COUNTERS,
        "n",
        "diskstats",
        bytes(16),
        0,
        1,
        SECOND,
        SECOND,
        shape.ticks,
        codec.DELTA_ZSTD,
        payload,
    )
    return Decoder().decode(envelope).values


def test_the_whole_of_taihulight_is_what_its_papers_say() -> None:
    assert {shape.role: shape.nodes for shape in taihulight(TAIHULIGHT)} == {
        "compute": 40_960,
        "forwarding": 288,
        "storage": 288,
        "metadata": 2,
    }
    assert sum(shape.nodes for shape in taihulight(5000)) == 5000


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.role)
def test_payloads_are_byte_for_byte_the_agents_own(shape: Shape) -> None:
    batches, encoder = Batches(shape, seed=3), codec.Encoder()
    nodes = np.arange(shape.nodes)
    for _ in range(3):
        for payload in batches.next(nodes, shape.ticks):
            values = decoded(shape, payload)
            ticks = [[tuple(row.tolist()) for row in tick] for tick in values]
            raw = Decoder()._zstd.decompress(payload)
            at = codec.HEADER.size + 4 * shape.components
            offsets = np.frombuffer(raw, "<i4", shape.ticks, at).tolist()
            assert encoder.encode(range(shape.components), ticks, offsets) == payload


def test_counters_rise_in_every_tick_and_go_on_from_batch_to_batch() -> None:
    shape = SHAPES[0]
    batches, nodes = Batches(shape, seed=4), np.arange(shape.nodes)
    first, second = batches.next(nodes, shape.ticks), batches.next(nodes, shape.ticks)
    for one, other in zip(first, second, strict=True):
        whole = np.concatenate([decoded(shape, one), decoded(shape, other)])
        assert (np.diff(whole, axis=0) > 0).all()
    assert len(set(first) | set(second)) == 2 * shape.nodes
    assert shape.nodes > LOADS


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.role)
def test_every_node_has_one_moment_a_batch_where_its_batch_ends(shape: Shape) -> None:
    crowd = Crowd(shape, seed=1)
    span_ns = shape.ticks * SECOND
    begin = 1_800_000_000 * SECOND + 123_456_789
    came: list[tuple[int, int]] = []
    steps = np.linspace(begin, begin + 2 * span_ns, 37).astype(np.int64).tolist()
    for after_ns, until_ns in pairwise(steps):
        for places, moments in crowd.due(after_ns, until_ns):
            assert all(after_ns < moment <= until_ns for moment in moments.tolist())
            came += zip(places.tolist(), moments.tolist(), strict=True)
    assert sorted(place for place, _ in came) == sorted(2 * list(range(shape.nodes)))
    for place, moment in came:
        tick = moment // SECOND * SECOND
        phase_ticks = shape.ticks - 1 - crowd.moments_ns[place] // SECOND
        assert last_tick(tick, SECOND, shape.ticks, int(phase_ticks)) == tick


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.scale", *options]
    return run_command(command, check=False)


@pytest.mark.parametrize(
    "options", [["--nodes", "0"], ["--minutes", "soon"], ["--burst", "-1"], ["--interval"]], ids=" ".join
)
def test_what_makes_no_sense_is_said_in_a_line(options: list[str]) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.e2e
def test_a_small_site_is_carried_and_nothing_of_it_is_lost() -> None:
    if shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") is None:
        pytest.skip("needs mosquitto")
    options = ["--nodes", "60", "--connections", "40", "--minutes", "0.6", "--report", "10"]
    windows = ["--interval", "1", "--window", "8", "--shift", "2"]
    done = run(*options, *windows)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost: 0 batches; samples sent and not taken: 0; held: 0" in done.stdout
    assert "40 nodes over connections of their own" in done.stdout


@pytest.mark.e2e
def test_a_few_agents_publish_in_one_instant_through_the_shipped_broker() -> None:
    programs = ("mosquitto", "openssl")
    if not all(shutil.which(each, path="/usr/sbin:/usr/bin:/usr/local/sbin") for each in programs):
        pytest.skip("needs mosquitto and openssl")
    done = run("--burst", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "samples sent: 240, taken: 240; lost: 0 batches; duplicates: 0" in done.stdout


@pytest.mark.e2e
def test_ended_from_outside_it_leaves_nothing_behind(tmp_path: Path) -> None:
    if shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") is None:
        pytest.skip("needs mosquitto")
    command = [sys.executable, "-m", "bench.scale", "--nodes", "20", "--directory", str(tmp_path)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("|"):
            assert process.poll() is None
        process.terminate()
        _, said = process.communicate(timeout=LIMIT_SECONDS)
    assert said == "bench.scale: ended from outside\n"
    assert list(tmp_path.iterdir()) == []
    children = [
        each for each in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(each)
    ]
    assert children == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
