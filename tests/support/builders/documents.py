"""Documents of outboxes, as the admission returns them, and as messages."""

import zstandard

from laggard_aggregator.ingest.batches import Document
from laggard_common.wire import Envelope, Kind
from laggard_common.wire.codec import DELTA_ZSTD

STREAM = b"d" * 16


def document(
    lsn: int, received_ns: int, content: bytes = b"{}", *, node: str = "cn-1", source: str = "jobs"
) -> Document:
    """A document of `content`."""
    payload = zstandard.ZstdCompressor().compress(content)
    return Document(lsn, "site", "compute", node, source, received_ns, payload, len(content))


def document_envelope(
    seq: int, t0_ns: int, content: bytes = b"{}", *, node: str = "cn-1", source: str = "jobs"
) -> Envelope:
    """The message of a document."""
    return Envelope(
        kind=Kind.EVENTS,
        node=node,
        source=source,
        stream=STREAM,
        seq=seq,
        schema_epoch=0,
        t0_ns=t0_ns,
        dt_ns=0,
        n=1,
        codec=DELTA_ZSTD,
        payload=zstandard.ZstdCompressor().compress(content),
    )
