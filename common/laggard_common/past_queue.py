"""Takes MQTT messages as they come, past aiomqtt's queue, whose every message costs its reader a task."""

import asyncio
from collections.abc import Callable

import aiomqtt


class PastQueue(asyncio.Queue[aiomqtt.Message]):
    """A queue that is always empty: what is put into it is handed on at once.

    As `queue_type` of `aiomqtt.Client`, with `hand_on` bound by `partial`.
    """

    def __init__(self, hand_on: Callable[[aiomqtt.Message], None], maxsize: int = 0) -> None:
        super().__init__(maxsize)
        self._hand_on = hand_on

    def put_nowait(self, item: aiomqtt.Message) -> None:
        """Hands the message on."""
        self._hand_on(item)
