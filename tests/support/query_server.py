"""A server that answers Prometheus' instant queries for node_exporter's disk counters."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

from laggard_aggregator.prometheus.compare_map import load_map

COUNTERS = load_map("node_exporter").sources[0].counters


@dataclass
class Answers:
    """What the server says: one series for each of `disks` (labels) and counter, every `scrape_seconds`.

    `lacks`: counters without series. `values`: those of some counters instead of their growth. `fails`: it
    answers 503. `trickles`: its answers never end. `headers`: of the latest question.
    """

    disks: list[dict[str, str]] = field(
        default_factory=lambda: [{"instance": "oss0:9100", "device": "sda", "job": "storage"}]
    )
    lacks: tuple[str, ...] = ()
    values: dict[str, str] = field(default_factory=dict)
    scrape_seconds: float = 15.0
    fails: bool = False
    trickles: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    def to(self, form: dict[str, list[str]]) -> dict[str, Any]:
        query, at = form["query"][0], float(form["time"][0])
        span = re.search(r"\[([0-9]+)s\]", query)
        if not query.startswith("{") or span is None:
            return {"resultType": "vector", "result": []}
        first = int((at - int(span[1])) // self.scrape_seconds) + 1
        times = [scrape * self.scrape_seconds for scrape in range(first, int(at // self.scrape_seconds) + 1)]
        result: list[dict[str, Any]] = [
            {
                "metric": labels | {"__name__": name},
                "values": [[time, self.values.get(name, f"{time * 10:.0f}")] for time in times],
            }
            for labels in self.disks
            for name in COUNTERS
            if name not in self.lacks
        ]
        return {"resultType": "matrix", "result": result}


@contextmanager
def answering(answers: Answers) -> Iterator[str]:
    """The server's URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            answers.headers = dict(self.headers)
            if answers.fails:
                document: dict[str, Any] = {"status": "error", "error": "overloaded"}
            else:
                document = {"status": "success", "data": answers.to(parse_qs(body))}
            self.send_response(503 if answers.fails else 200)
            self.end_headers()
            with suppress(OSError):
                while answers.trickles:
                    self.wfile.write(b" ")
                    time.sleep(0.02)
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server that answers by `handler`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
