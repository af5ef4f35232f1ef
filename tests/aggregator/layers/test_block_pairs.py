"""An issue and a completion are of one request only when operation, sector and length agree."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.layers.columns import ABSENT, READ, WRITE
from laggard_aggregator.layers.readers.open_recording import open_recording
from laggard_common.errors import InputError
from tests.aggregator.layers.analysed import analysed
from tests.support.builders.kernel_text import KernelTrace

SECOND = 1_000_000


def line(built: KernelTrace, time: float, event: str, kind: str, sector: int, sectors: int) -> None:
    """One event of device 7,0."""
    middle = f"{sectors * 512} ()" if event == "block_rq_issue" else "()"
    built.line(time, f"{event}: 7,0 {kind} {middle} {sector} + {sectors} none,0,0 [app]")


def writes(count: int = 40) -> KernelTrace:
    """Healthy writes of 10 ms each."""
    built = KernelTrace()
    for at in range(count):
        line(built, at * SECOND, "block_rq_issue", "WS", 1000 + at * 16, 16)
        line(built, at * SECOND + 10_000, "block_rq_complete", "WS", 1000 + at * 16, 16)
    return built


@pytest.mark.parametrize(
    ("kind", "sector", "sectors"),
    [("R", 90_000, 16), ("WS", 90_000, 8), ("WS", 90_000, 32), ("WS", 90_008, 16), ("D", 90_000, 16)],
)
@pytest.mark.parametrize("issued_at", [20.5, 39.5])
def test_a_completion_of_another_request(
    tmp_path: Path, kind: str, sector: int, sectors: int, issued_at: float
) -> None:
    built = writes()
    line(built, issued_at * SECOND, "block_rq_issue", "WS", 90_000, 16)
    line(built, 110 * SECOND, "block_rq_complete", kind, sector, sectors)
    found = analysed(built.write(tmp_path / "run"))
    assert found.findings == []
    device = found.layer("device")
    assert device["mean_residence_us"] == 10_000.0
    assert device["busy_seconds"] == pytest.approx(0.4)
    assert (device["requests"], device["unfinished"]) == (41, 1)
    is_part = (kind, sector, sectors) == ("WS", 90_000, 8)  # its rest was lost, or is in flight at the end
    expected = (1 if issued_at < 39 else 0) if is_part else 2
    assert found.records[0]["lost_events"] == expected


def test_the_rest_of_a_request_may_be_issued_again(tmp_path: Path) -> None:
    built = writes()
    line(built, 20.5 * SECOND, "block_rq_issue", "WS", 90_000, 16)
    line(built, 20.51 * SECOND, "block_rq_complete", "WS", 90_000, 8)
    line(built, 20.52 * SECOND, "block_rq_issue", "WS", 90_008, 8)
    line(built, 20.53 * SECOND, "block_rq_complete", "WS", 90_008, 8)
    found = analysed(built.write(tmp_path / "run"))
    assert found.records[0]["lost_events"] == 0
    assert found.layer("device")["unfinished"] == 0
    assert found.layer("device")["mean_residence_us"] == 10_000.0


@dataclass(frozen=True)
class Request:
    """A request of the model; `parts`: sectors and times of its completions."""

    kind: str
    sector: int
    sectors: int
    begin: int
    parts: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """Time of the last completion."""
        return self.parts[-1][1]


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """Requests of which no two have one operation, sector and length."""
    keys = draw(
        st.lists(
            st.tuples(st.sampled_from(["R", "W", "RA", "WS"]), st.integers(0, 3), st.integers(1, 8)),
            min_size=1,
            max_size=25,
            unique_by=lambda key: (key[0][0], *key[1:]),
        )
    )
    made = []
    for number, (kind, place, length) in enumerate(keys):
        begin = draw(st.integers(0, 10**6)) * 100 + number
        cuts = sorted(draw(st.sets(st.integers(1, length), max_size=2)) | {length})
        parts, before, time = [], 0, begin
        for cut in cuts:
            time += draw(st.integers(1, 5000)) * 100
            parts.append((cut - before, time))
            before = cut
        made.append(Request(kind, place * 64, length, begin, tuple(parts)))
    return made


@given(requests(), st.data())
def test_no_request_gets_the_end_of_another_one(made: list[Request], data: st.DataObject) -> None:
    """Lost events of requests at the same sectors change no time of the others."""
    built = KernelTrace()
    whole = []
    for request in made:
        lost = data.draw(st.sampled_from(["none", "none", "issue", "completions"]))
        if lost != "issue":
            line(built, request.begin, "block_rq_issue", request.kind, request.sector, request.sectors)
        if lost != "completions":
            at = request.sector
            for sectors, time in request.parts:
                line(built, time, "block_rq_complete", request.kind, at, sectors)
                at += sectors
        if lost == "none":
            whole.append(request)
    ends = {(r.kind[0], r.sector, r.sectors): r.end for r in made}
    with tempfile.TemporaryDirectory() as folder:
        try:
            layers = open_recording([built.write(Path(folder) / "run")]).layers
        except InputError:
            assert not whole
            return
    columns = next(layer.requests for layer in layers if layer.name == "device")
    for at in range(len(columns)):
        key = (
            {READ: "R", WRITE: "W"}[int(columns.operation[at])],
            int(columns.start[at]) // 512,
            int(columns.size[at]) // 512,
        )
        if columns.end[at] != ABSENT and len({len(r.parts) for r in made}) == 1:
            assert columns.end[at] == 1000 * (10**9 + ends[key])
    if all(len(r.parts) == 1 for r in made):
        finished = int((columns.end != ABSENT).sum())
        assert finished == len(whole)
