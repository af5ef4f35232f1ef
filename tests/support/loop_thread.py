"""What needs an event loop, in a thread beside the caller."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def beside(run: Callable[[asyncio.Event], Coroutine[Any, Any, object]]) -> Iterator[None]:
    """`run` in a thread of its own while the block lasts; it gets an event that is set at the end."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(stop),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
