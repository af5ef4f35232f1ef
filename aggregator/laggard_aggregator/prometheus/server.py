"""Questions to a Prometheus server, or to another that answers as one (VictoriaMetrics, Mimir, Thanos)."""

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_common.errors import ConfigError, ServiceError, TooMuchAskedError

TIMEOUT_SECONDS = 120.0
SLOWEST = 10
"""Times the timeout within which all of an answer has to come, however steadily it trickles."""
ANSWER_BYTES = 256 * 1024 * 1024
TRIES = 3
PAUSE_SECONDS = 1.0
_TRY_AGAIN = {http.client.TOO_MANY_REQUESTS, http.client.BAD_GATEWAY, http.client.SERVICE_UNAVAILABLE}
_BLOCK = 1 << 20
_WHOLE = {"deny_partial_response": "1", "partial_response": "false"}
"""Arguments of VictoriaMetrics and Thanos; others ignore them."""
_PARTIAL = "answered in part: some of its stores are missing"
_MOST_CHARS = 300
_CALLED = "--prometheus"


@dataclass(frozen=True, slots=True)
class LabelledSeries:
    """A series of an answer: `values` (T,) at `times` (T,), epoch seconds. Values may be NaN or infinite."""

    labels: Mapping[str, str]
    times: FloatArray
    values: FloatArray


def bearer(token: str) -> Mapping[str, str]:
    """The header of a token; none for an empty one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def url_problem(url: str) -> str | None:
    """The reason why `url` is not that of a server, or that it has a password; None if it is usable."""
    parts = urlsplit(url)
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        return f"expected http://HOST:PORT, got {url[:80]!r}"
    if parts.username is not None or parts.password is not None:
        return "no user or password in the URL; a file has the token"
    return None


@dataclass(slots=True)
class PrometheusServer:
    """The server at `url`. `warnings`: those of its answers, each once.

    `headers`: sent with each question, such as credentials and the tenant of Mimir. A question is asked
    `tries` times, each for `timeout_seconds`. `whole`: an answer that lacks the series of some stores is an
    error, else a warning. Raises ConfigError for a URL that is none, or that has a password in it.

    Questions raise ServiceError with one line, TooMuchAskedError where a shorter span may be answered.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    tries: int = TRIES
    whole: bool = False
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        wrong = url_problem(self.url)
        if wrong:
            raise ConfigError("", [f"{_CALLED}: {wrong}"])

    def instant(self, expression: str, at: float) -> list[LabelledSeries]:
        """The series of `expression` at `at`, epoch seconds."""
        return self._asked("query", {"query": expression, "time": f"{at:.3f}"})

    def over(self, expression: str, start: float, end: float, step: float) -> list[LabelledSeries]:
        """The series of `expression` at `start`, `start + step`, ... `end`."""
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._asked("query_range", {"query": expression, **span})

    def _asked(self, question: str, parameters: Mapping[str, str]) -> list[LabelledSeries]:
        parameters = {**parameters, **_WHOLE} if self.whole else parameters
        for left in reversed(range(self.tries)):
            try:
                status, body = self._post(question, parameters)
            except (OSError, http.client.HTTPException) as exc:
                if left:
                    time.sleep(PAUSE_SECONDS)
                    continue
                reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
                raise ServiceError(f"{self.url}: no answer: {reason}") from exc
            if status not in _TRY_AGAIN or not left:
                break
            time.sleep(PAUSE_SECONDS)
        return self._read(status, body)

    def _post(self, question: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            try:
                context = ssl.create_default_context(cafile=self.ca_file)
            except OSError as exc:
                raise ConfigError("", [f"--ca-file: {self.ca_file}: {exc.strerror or exc}"]) from exc
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=self.timeout_seconds, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self.timeout_seconds)
        form = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        headers = {**self.headers, **form}
        try:
            path = f"{parts.path.rstrip('/')}/api/v1/{question}"
            connection.request("POST", path, urlencode(parameters), headers)
            answer = connection.getresponse()
            body = _read(answer, time.monotonic() + SLOWEST * self.timeout_seconds)
        finally:
            connection.close()
        if len(body) > ANSWER_BYTES:
            raise TooMuchAskedError(f"{self.url}: an answer of more than {ANSWER_BYTES >> 20} MiB")
        return answer.status, body

    def _read(self, status: int, body: bytes) -> list[LabelledSeries]:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or document.get("status") not in ("success", "error"):
            reason = http.client.responses.get(status, "")
            raise ServiceError(f"{self.url}: answered {status} {reason}, not as a Prometheus server does")
        if document["status"] == "error":
            raise self._error(status, document)
        is_partial = document.get("isPartial") is True
        if is_partial and self.whole:
            raise ServiceError(f"{self.url}: {_PARTIAL}")
        for warning in (*(document.get("warnings") or ()), *([_PARTIAL] if is_partial else ())):
            if str(warning)[:_MOST_CHARS] not in self.warnings:
                self.warnings.append(str(warning)[:_MOST_CHARS])
        try:
            return list(_series(document["data"]))
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise ServiceError(f"{self.url}: an answer that is none of query or query_range") from exc

    def _error(self, status: int, document: Mapping[str, Any]) -> ServiceError:
        """The error that an answer tells: too many samples, series, chunks or points, a timeout, or another.

        422 is any error while a query runs, among them the limits of Prometheus, Mimir and VictoriaMetrics.
        """
        text = str(document.get("error", "failed"))
        too_much = (
            status == http.client.UNPROCESSABLE_ENTITY
            or document.get("errorType") == "timeout"
            or "maximum resolution" in text
        )
        return (TooMuchAskedError if too_much else ServiceError)(f"{self.url}: {text[:_MOST_CHARS]}")


def _read(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body of an answer, up to a block beyond ANSWER_BYTES. Raises OSError."""
    body = bytearray()
    while len(body) <= ANSWER_BYTES and (block := answer.read1(_BLOCK)):
        body += block
        if time.monotonic() > deadline:
            raise TimeoutError("it takes too long")
    return bytes(body)


def _series(data: Mapping[str, Any]) -> Iterator[LabelledSeries]:
    if data["resultType"] not in ("vector", "matrix"):
        raise ValueError(data["resultType"])
    for result in data["result"]:
        pairs = result["values"] if "values" in result else [result["value"]]
        labels = {str(name): str(value) for name, value in result["metric"].items()}
        numbers = np.array([(float(at), float(text)) for at, text in pairs]).reshape(-1, 2)
        yield LabelledSeries(labels, numbers[:, 0], numbers[:, 1])
