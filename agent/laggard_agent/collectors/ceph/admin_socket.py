"""Questions to a Ceph daemon over its admin socket.

A question is JSON and a zero byte; the answer's length comes first, four bytes, the highest first
(src/common/admin_socket.cc).
"""

import json
import socket
import struct
from pathlib import Path

from laggard_agent.collectors.interface import note_read, refused, unreadable
from laggard_common.errors import CollectError

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = 64 * 1024


def ask(path: Path, question: str, timeout_seconds: float) -> bytes:
    """The answer to `question`, such as `perf dump`. Raises CollectError."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            connection.sendall(json.dumps({"prefix": question}).encode() + b"\0")
            (length,) = _LENGTH.unpack(_received(connection, path, _LENGTH.size))
            if length > MAX_ANSWER_BYTES:
                raise refused(path, f"an answer of {length} bytes")
            answer = _received(connection, path, length)
    except TimeoutError as exc:
        raise refused(path, f"no answer within {timeout_seconds:g} s") from exc
    except OSError as exc:
        raise unreadable(path, exc) from exc
    note_read(path, answer)
    return answer


def _received(connection: socket.socket, path: Path, length: int) -> bytes:
    chunks = []
    while length:
        chunk = connection.recv(min(length, _CHUNK_BYTES))
        if not chunk:
            raise CollectError(str(path), "an answer that ends too early")
        chunks.append(chunk)
        length -= len(chunk)
    return b"".join(chunks)
