"""The demo's recording played to agents while something else goes on, for benches and end-to-end tests."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from laggard_aggregator.demo.replay import Replay


@contextmanager
def playing(replay: Replay) -> Iterator[None]:
    """The replay in a thread of its own while the block lasts."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(replay.run(stop),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
