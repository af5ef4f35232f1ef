"""Answers of VictoriaMetrics, Mimir and Thanos that differ from Prometheus's, in their words.

From VictoriaMetrics's `app/vmselect/prometheus` (`error_response.qtpl`, `export.qtpl`, `prometheus.go`) and
cluster documentation, Mimir's runbook (`err-mimir-*`) and Thanos's `docs/components/query.md`.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from laggard_aggregator.offline.prometheus_input import Span, read_prometheus
from laggard_aggregator.prometheus.compare_map import Compare, CompareMap
from laggard_aggregator.prometheus.server import PrometheusServer
from laggard_common.errors import ServiceError, TooMuchAskedError
from tests.support.live_scrapes import live_scrapes
from tests.support.query_server import Answers, serving

Form = dict[str, str]
Answer = tuple[int, dict[str, Any]]
START = 1_764_000_000.0
OF_PROMETHEUS = "query processing would load too many samples into memory in query execution"
OF_VICTORIA = (
    "cannot select more than -search.maxSamplesPerQuery=1000000000 samples; possible solutions: increase the "
    "-search.maxSamplesPerQuery; reduce time range for the query; use more specific label filters"
)
OF_MIMIR = (
    "the query exceeded the maximum number of chunks (limit: 2000000 chunks) "
    "(err-mimir-max-chunks-per-query). Consider reducing the time range and/or number of series selected"
)
RESOLUTION = "exceeded maximum resolution of 11,000 points per timeseries"


@contextmanager
def asked(answer: Callable[[Form], Answer]) -> Iterator[str]:
    """The URL of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, document = answer({name: values[0] for name, values in form.items()})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield f"{url}/select/0/prometheus"


def success(data: object, **more: object) -> Answer:
    return 200, {"status": "success", **more, "data": data}


def refusal(status: int, kind: str, text: str) -> Answer:
    return status, {"status": "error", "errorType": kind, "error": text}


@pytest.mark.parametrize(
    "refused",
    [
        refusal(422, "execution", OF_PROMETHEUS),
        refusal(422, "422", OF_VICTORIA),
        refusal(422, "execution", OF_MIMIR),
        refusal(400, "bad_data", RESOLUTION),
        refusal(503, "timeout", "query timed out in expression evaluation"),
    ],
)
def test_a_question_that_is_too_large_is_asked_in_shorter_spans(
    refused: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laggard_aggregator.prometheus.server.PAUSE_SECONDS", 0.0)
    spans: list[int] = []

    def answer(form: Form) -> Answer:
        begin, end, step = (float(form[name]) for name in ("start", "end", "step"))
        steps = round((end - begin) / step) + 1
        if steps > 10:
            return refused
        spans.append(steps)
        times = (begin + step * np.arange(steps)).tolist()
        values = [[time, "2" if "operations" in form["query"] else "0.01"] for time in times]
        return success(
            {"resultType": "matrix", "result": [{"metric": {"disk": d}, "values": values} for d in "ab"]}
        )

    table = Compare("disks", "await", ("disk",), ("seconds",), ("operations",))
    with asked(answer) as url:
        server, span = PrometheusServer(url), Span(START, START + 6000, 60)
        (grid,) = read_prometheus(server, CompareMap((table,)), span, 10, [])
    first = round(START / 60)
    assert grid.blocks.tolist() == list(range(first // 10, (first + 99) // 10 + 1))
    known = np.isfinite(grid.metrics["await"])
    assert known.sum(axis=1).tolist() == [100, 100]
    assert np.flatnonzero(known[0]).tolist() == [first % 10 + at for at in range(100)]
    assert grid.metrics["await"][known].tolist() == pytest.approx([5.0] * 200)
    assert sum(spans) == 200
    assert max(spans) <= 10


def test_a_span_read_in_parts_is_the_same_and_keeps_only_blocks_with_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(form: Form) -> Answer:
        begin, end, step = (float(form[name]) for name in ("start", "end", "step"))
        times = begin + step * np.arange(round((end - begin) / step) + 1)
        after = times - START
        result = []
        for disk, since in (("a", 0.0), ("b", 12_000.0)):  # b is new; nothing from 3,000 s to 9,000 s
            there = (after > since) & ((after <= 3000) | (after > 9000))
            rates = 1.0 + after / 6000 if "seconds" in form["query"] else np.full(times.size, 100.0)
            pairs = zip(times[there].tolist(), rates[there].tolist(), strict=True)
            values = [[at, f"{rate!r}"] for at, rate in pairs]
            result += [{"metric": {"disk": disk}, "values": values}] if values else []
        return success({"resultType": "matrix", "result": result})

    table = Compare("disks", "await", ("disk",), ("seconds",), ("operations",))
    span = Span(START, START + 18_000, 60)
    with asked(answer) as url:
        (whole,) = read_prometheus(PrometheusServer(url), CompareMap((table,)), span, 7, [])
        monkeypatch.setattr("laggard_aggregator.offline.prometheus_input.CELLS_A_PART", 1)
        (parts,) = read_prometheus(PrometheusServer(url), CompareMap((table,)), span, 7, [])
    assert whole.components == parts.components == ("a", "b")
    assert whole.blocks.tolist() == parts.blocks.tolist()
    number = round(START / 60)
    with_samples = {(number + step) // 7 for step in range(300) if step < 50 or step >= 150}
    assert whole.blocks.tolist() == sorted(with_samples)
    latency = whole.metrics["await"]
    np.testing.assert_array_equal(latency, parts.metrics["await"])
    assert np.isfinite(latency).sum(axis=1).tolist() == [200, 100]
    last = np.flatnonzero(np.isfinite(latency[1]))[-1]
    assert latency[:, last].tolist() == pytest.approx([40.0, 40.0])


def test_a_question_that_is_too_large_at_its_shortest_fails() -> None:
    table = Compare("disks", "await", ("disk",), ("seconds",), ("operations",))
    span = Span(START, START + 600, 60)
    with asked(lambda _: refusal(422, "422", OF_VICTORIA)) as url:
        server = PrometheusServer(url)
        with pytest.raises(TooMuchAskedError, match="maxSamplesPerQuery"):
            list(read_prometheus(server, CompareMap((table,)), span, 10, []))


def test_the_daemon_reads_its_backlog_in_shorter_spans() -> None:
    answers = Answers()
    spans: list[int] = []

    def answer(form: Form) -> Answer:
        if form["query"].startswith("{"):
            spans.append(int(form["query"].rpartition("[")[2][:-2]))
            if spans[-1] > 60:
                return refusal(422, "422", OF_VICTORIA)
        return success(answers.to({name: [value] for name, value in form.items()}))

    with asked(answer) as url:
        live = live_scrapes(url, START)
        live.run(START + 15)
        live.now = START + 600  # the daemon was away
        live.run(START + 615)
    ticks = [round(int(batch.counters.tick_ns[0]) / 1e9 - START) for batch in live.batches]
    assert ticks == list(range(0, 616, 15))
    assert live.input.view.failures == 0
    assert max(spans) > 60


def test_stale_markers_among_samples_are_no_scrapes() -> None:
    answers = Answers()

    def answer(form: Form) -> Answer:
        data = answers.to({name: [value] for name, value in form.items()})
        for series in data["result"] if data["resultType"] == "matrix" else ():
            scrapes = series["values"]
            series["values"] = [at for time, value in scrapes for at in ([time, value], [time + 4, "NaN"])]
        return success(data)

    with asked(answer) as url:
        live = live_scrapes(url, START)
        live.run(START + 60)
    assert len(live.batches) == 5
    assert live.input.view.left_out == 0
    for batch in live.batches:
        assert batch.counters.present is None or batch.counters.present[0, 0]


def test_an_answer_in_part_is_denied_by_the_daemon_and_told_by_diagnose() -> None:
    forms: list[Form] = []
    answers = Answers()

    def answer(form: Form) -> Answer:
        forms.append(form)
        return success(answers.to({name: [value] for name, value in form.items()}), isPartial=True)

    with asked(answer) as url:
        live = live_scrapes(url, START)
        live.run(START + 15)
        server = PrometheusServer(url)
        server.instant("up", START)
        with pytest.raises(ServiceError, match="answered in part"):
            PrometheusServer(url, whole=True).instant("up", START)
    assert "answered in part" in live.input.view.failure
    assert not live.batches
    assert forms[0]["deny_partial_response"] == "1"
    assert forms[0]["partial_response"] == "false"
    assert server.warnings == ["answered in part: some of its stores are missing"]
    assert "deny_partial_response" not in forms[-2]


def test_times_that_victoriametrics_aligns_are_those_asked_for() -> None:
    """It moves start and end of 50 points and more to multiples of the step, where they are already."""
    asked_for: list[Form] = []

    def answer(form: Form) -> Answer:
        asked_for.append(form)
        return success({"resultType": "matrix", "result": []})

    table = Compare("disks", "await", ("disk",), ("seconds",), ("operations",))
    with asked(answer) as url:
        list(
            read_prometheus(
                PrometheusServer(url), CompareMap((table,)), Span(START, START + 9000, 120), 10, []
            )
        )
    assert asked_for
    for form in asked_for:
        assert float(form["start"]) % float(form["step"]) == float(form["end"]) % float(form["step"]) == 0
