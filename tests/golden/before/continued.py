"""State, archive and spools of an earlier version, and the results when the present one continues them."""

import asyncio
import email
import json
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.golden import entry, formats, site
from tests.golden.entry import wire

PACKED = Path(__file__).with_name("site.tar.xz")
BATCHES = 18
"""How many batches of each server the earlier version took; the one of oss-7 after that it gave back."""
ORDERS = (
    ("silence", "oss-1/sda", "--comment", "disk ordered"),
    ("drain", "oss-8", "--for", "1min", "--comment", "new cables"),
    ("replaced", "oss-3/sdb"),
)
MAIL = """\
[mail]
server = "127.0.0.1"
port = {port}
sender = "laggard@example.org"
recipients = ["storage@example.org"]
after_seconds = 0
learning_seconds = 0
gather_seconds = 0
"""
AGENT = """\
node = "oss-1"
interval_seconds = 0.05
batch_samples = 4
collectors = ["diskstats"]
[mqtt]
port = {port}
[spool]
directory = {directory}
"""
PATHS = (
    "/api/v1/stragglers",
    "/api/v1/groups",
    "/api/v1/nodes",
    "/api/v1/decisions",
    "/api/v1/components/luns/oss-5/sda",
    "/api/v1/components/functions/oss-5",
    "/metrics/nodes",
)


def goldens() -> dict[str, Callable[[], str]]:
    """By file name in this folder, what makes its text. The earlier version made those that are there."""
    return {"continued.json": continued, "diagnosed.jsonl": diagnosed}


def continued() -> str:
    """What the state leads to, see `went_on`."""
    with tempfile.TemporaryDirectory() as folder:
        return formats.text(asyncio.run(went_on(unpacked(Path(folder)))))


def diagnosed() -> str:
    """`laggard diagnose` of the archive, with every window."""
    with tempfile.TemporaryDirectory() as folder:
        archive = str(unpacked(Path(folder)) / "archive")
        return entry.laggard("diagnose", archive, "--windows", "--json")


def unpacked(folder: Path, packed: Path = PACKED) -> Path:
    """`archive`, `state` and `spools` in `folder`."""
    with tarfile.open(packed) as tar:
        if hasattr(tarfile, "data_filter"):  # from 3.11.4 on
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)
    return folder


class Mailbox:
    """The mails that an SMTP server on loopback took."""

    def __init__(self) -> None:
        self.port = 0
        self.mails: list[EmailMessage] = []

    async def handle_DATA(self, _: SMTP, __: Session, envelope: Envelope) -> str:
        """Keeps a mail."""
        assert isinstance(envelope.original_content, bytes)
        parsed = email.message_from_bytes(envelope.original_content, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.mails.append(parsed)
        return "250 OK"


@asynccontextmanager
async def mailbox() -> AsyncIterator[Mailbox]:
    """An SMTP server while the block lasts."""
    box = Mailbox()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(box, hostname="mail.example.org"), "127.0.0.1", 0)
    box.port = server.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        server.close()
        await server.wait_closed()


def all_acknowledged(broker: entry.Broker, seq: int) -> bool:
    """Whether each server's batches up to `seq` are acknowledged."""
    acks = site.acknowledged(broker)
    last = {
        node: min((max(high for _, high in ranges) for ranges in streams.values() if ranges), default=-1)
        for node, streams in acks.items()
        if node != "oss-4"  # its first stream ended
    }
    return len(last) == len(site.NODES) - 1 and min(last.values()) >= seq


async def went_on(folder: Path) -> dict[str, Any]:
    """The answers after a restart on the state in `folder`, and after the servers' next batches."""
    found: dict[str, Any] = {}
    clock = site.HandClock(site.START + (site.TICKS * (BATCHES - 1) + 8) * site.SECOND)
    async with site.broker() as broker, mailbox() as box:
        path = site.config(folder, broker.port, "snapshot_seconds = 86400.0\n", MAIL.format(port=box.port))
        async with site.live(path, clock, broker) as live:
            found["restarted"] = await answers(live)
            again = [
                site.data(site.envelope(site.schema(node), seq))
                for node in ("oss-1", "oss-7")
                for seq in range(BATCHES + (node == "oss-7"))
            ]
            await live.publish(again)  # all but the returned one was taken before
            await live.until(lambda _: bool(site.acknowledged(broker).get("oss-7")))
            found["again"] = {"sent": len(again), **await counted(live)}
            await live.play(range(BATCHES, 30))
            await live.until(lambda _: all_acknowledged(broker, 29))
            await live.until(lambda _: len(box.mails) >= 2)
            found["later"] = await answers(live) | {"counted": await counted(live)}
            found["acknowledged"] = site.acknowledged(broker)
        ids = sorted((str(mail["Message-ID"]), str(mail["References"])) for mail in box.mails)
        found["mails"] = [{"id": id_, "references": before} for id_, before in ids]  # sent in any order
    found["archive"] = {
        name: {"rows": table.num_rows, "sha256": formats.rounded_digest(formats.rows(table))}
        for name, table in formats.tables(folder / "archive").items()
    }
    return found


async def answers(live: site.Live) -> dict[str, Any]:
    """The JSON of the API."""
    asked = await live.answers()

    def ask() -> dict[str, Any]:
        return {path: said(asked.text(path)) for path in PATHS}

    return await asyncio.to_thread(ask)


def said(body: str) -> Any:
    """A body of JSON or of metrics as plain data, without the name of whoever runs this."""
    if not body.startswith("{"):
        return [line for line in body.splitlines() if not line.startswith("#")]
    answer = json.loads(body)
    for decision in answer.get("decisions", ()):
        decision["by"] = "somebody"
    return answer


async def counted(live: site.Live) -> dict[str, float]:
    """What the aggregator has counted since its start."""
    asked = await live.answers()
    names = ("messages", "samples", "duplicates", "gaps", "late_samples", "wire_errors", "windows")
    return await asyncio.to_thread(lambda: {name: asked.metric(f"laggard_{name}_total") for name in names})


def agent_files(folder: Path, port: int) -> tuple[Path, Path]:
    """agent.toml, with a spool beside it, and a /proc."""
    procfs = folder / "proc"
    procfs.mkdir(parents=True, exist_ok=True)
    lines = (f"   8 {16 * n:7d} sd{'ab'[n]} " + " ".join(map(str, range(n + 1, n + 18))) for n in range(2))
    (procfs / "diskstats").write_text("\n".join(lines) + "\n")
    path = folder / "agent.toml"
    path.write_text(AGENT.format(port=port, directory=json.dumps(str(folder / "spool"))))
    return path, procfs


def came(broker: entry.Broker) -> dict[tuple[bytes, int], wire.Envelope]:
    """The batches that an agent published, by stream and seq; coalesced ones apart again."""
    found = {}
    for message in broker.messages:
        if "/data/" in message.topic:
            for batch in entry.apart(wire.decode_envelope(message.payload)):
                found[batch.stream, batch.seq] = batch
    return found


def waiting(spool: Path) -> dict[tuple[bytes, int], wire.Envelope]:
    """The batches in the files of a spool, acknowledged ones among them, by stream and seq."""
    found = {}
    for path in sorted(spool.glob("*.segment")):
        for type_, payload in formats.records(path):
            if type_ == 2:
                batch = wire.decode_envelope(payload)
                found[batch.stream, batch.seq] = batch
    return found
