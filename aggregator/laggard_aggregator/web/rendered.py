"""Bodies of answers: read on the event loop, rendered one at a time in a thread, and kept for a short time.

Rendering takes at most a third of one core, however many readers ask how often: ingest has priority.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

State = TypeVar("State")

MAX_KEPT = 64
MAX_KEPT_BYTES = 64_000_000
KEPT_SHARE = 2.0
"""Time for which a body is kept, as a multiple of the time that it took."""


@dataclass(frozen=True, slots=True)
class _KeptBody:
    until: float
    body: bytes


class Renderer:
    """Renders while it holds `lock`."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._kept: OrderedDict[Hashable, _KeptBody] = OrderedDict()

    async def body(self, key: Hashable, read: Callable[[], State], render: Callable[[State], bytes]) -> bytes:
        """The body that `render` makes, in a thread, of the state that `read` copies on the event loop.

        Whoever asks for the same `key` meanwhile or soon afterwards gets the same object. Raises what the two
        raise, which is not kept.
        """
        async with self._lock:
            kept = self._kept.get(key)
            if kept is not None and time.monotonic() < kept.until:
                return kept.body
            begun = time.monotonic()
            body = await asyncio.to_thread(render, read())
            ended = time.monotonic()
            self._keep(key, _KeptBody(ended + KEPT_SHARE * (ended - begun), body))
        return body

    def _keep(self, key: Hashable, kept: _KeptBody) -> None:
        """Keeps a body, and lets go of expired ones and, beyond the limits, of the oldest others."""
        self._kept.pop(key, None)
        self._kept[key] = kept
        now = time.monotonic()
        for expired in [page_key for page_key, other in self._kept.items() if other.until <= now]:
            del self._kept[expired]
        left = sum(len(page.body) for page in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT or left > MAX_KEPT_BYTES):
            _, oldest = self._kept.popitem(last=False)
            left -= len(oldest.body)
