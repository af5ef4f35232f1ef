"""Admin sockets of OSDs that answer as Ceph's do: the length of an answer comes first."""

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

FSID = "5c1e8c1a-7a0f-4f5e-9a55-0a6f3c1b2d4e"


@dataclass
class AdminSocket:
    """The socket of `osd.<number>`; `dump`: its answer to `perf dump`, `histograms` to that for them.

    `sent`: bytes in place of any answer.
    """

    number: int
    dump: bytes
    cluster: str = "ceph"
    folder: str = ""
    sent: bytes | None = None
    histograms: bytes = b"no command"
    questions: list[str] = field(default_factory=list)

    def answer(self, question: bytes) -> bytes:
        name = json.loads(question.rstrip(b"\0"))["prefix"]
        self.questions.append(name)
        if self.sent is not None:
            return self.sent
        status = {"cluster_fsid": FSID, "whoami": self.number, "state": "active"}
        answers = {"perf dump": self.dump, "perf histogram dump": self.histograms}
        answer = answers.get(name, json.dumps(status).encode())
        return struct.pack(">I", len(answer)) + answer


@contextmanager
def listening(folder: Path, *osds: AdminSocket) -> Iterator[None]:
    """The sockets in `folder`, while the block lasts."""
    with ExitStack() as stack:
        for osd in osds:
            path = folder / osd.folder / f"{osd.cluster}-osd.{osd.number}.asok"
            path.parent.mkdir(parents=True, exist_ok=True)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(str(path))
            listener.listen()
            thread = Thread(target=_serve, args=(listener, osd))
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
        yield


def _serve(listener: socket.socket, osd: AdminSocket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            question = b""
            while not question.endswith(b"\0") and (chunk := connection.recv(4096)):
                question += chunk
            if question:
                connection.sendall(osd.answer(question))
