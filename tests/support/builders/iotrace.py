"""What the tests of the I/O trace share."""

import io
from pathlib import Path

from laggard_agent.tools.iotrace.command import FORMATS
from laggard_agent.tools.iotrace.reader import TraceReader
from laggard_common.wire.trace_records import TraceRecord

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "iotrace"
SAMPLES = {"laggard": "node.trace", "strace": "calls.strace", "dxt": "job.dxt.txt"}


def read(format_name: str, data: bytes) -> tuple[list[TraceRecord], TraceReader]:
    """The records of a log, and the reader with its counts."""
    reader = TraceReader(FORMATS[format_name]("cn-17"))
    return list(reader.read(io.BytesIO(data))), reader


def sample(format_name: str) -> bytes:
    """The fixture in this format."""
    return (FIXTURES / SAMPLES[format_name]).read_bytes()
