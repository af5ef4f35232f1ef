"""Runs a daemon under signals: SIGTERM and SIGINT end it, SIGHUP reloads its configuration."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from laggard_common.daemon.sd_notify import Notifier
from laggard_common.errors import LaggardError

_log = logging.getLogger(__name__)

HUNG_SECONDS = 10.0
"""Time without an answer from which on a file system hangs."""

S = TypeVar("S")
T = TypeVar("T")


class Runnable(Protocol):
    """Main object of a daemon."""

    async def run(self, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
        """Runs until `stop` is set; sets `started` once it is ready."""


R = TypeVar("R", bound=Runnable)


class Service(Generic[S, R]):
    """Runs the object that `make` builds from settings, and replaces it on SIGHUP.

    `load` reads the settings; raises LaggardError. `make(settings, before)`: `before` is the previous object,
    which has ended, None at first; it raises nothing that `load` does not raise. New settings that cannot be
    loaded are rejected, and the running object is not affected. If an object fails to start with new
    settings, for instance because a port is taken, the service returns to the previous ones. `ending` is
    called at the first signal that ends it.
    """

    def __init__(
        self,
        load: Callable[[], S],
        make: Callable[[S, R | None], R],
        notifier: Notifier,
        ending: Callable[[], None] = lambda: None,
    ) -> None:
        self._load = load
        self._make = make
        self._notifier = notifier
        self._ending = ending
        self._end = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self, settings: S) -> None:
        """Runs with `settings` first, until a signal ends it. Raises the error of a failed first start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end_signalled)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        running, known_good = self._make(settings, None), settings
        while True:
            started = asyncio.Event()
            try:
                wanted = await self._while_wanted(running, started)
            except LaggardError as exc:
                if started.is_set() or settings is known_good:
                    raise
                _log.error("the new configuration failed; going back to the previous one: %s", exc)
                settings = known_good
            else:
                if wanted is None:
                    return
                if started.is_set():
                    known_good = settings
                settings = wanted
            running = self._make(settings, running)

    def _end_signalled(self) -> None:
        if not self._end.is_set():
            self._ending()
        self._end.set()

    async def _while_wanted(self, running: R, started: asyncio.Event) -> S | None:
        """Runs until the end and returns None, or until a reload and returns the new settings."""
        stop = asyncio.Event()
        task = asyncio.create_task(running.run(stop, started))
        wanted: S | None = None
        try:
            while wanted is None and await self._reload_wanted(task):
                wanted = self._new_settings()
            if not task.done() and wanted is None:
                self._notifier.stopping()
        finally:
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return wanted

    async def _reload_wanted(self, task: "asyncio.Task[None]") -> bool:
        """Waits for a signal or the end of `task`; True for a reload."""
        signals = [asyncio.create_task(event.wait()) for event in (self._end, self._reload)]
        await asyncio.wait({task, *signals}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in signals:
            waiting.cancel()
        reload = self._reload.is_set() and not self._end.is_set() and not task.done()
        self._reload.clear()
        return reload

    def _new_settings(self) -> S | None:
        self._notifier.reloading()
        try:
            settings = self._load()
        except LaggardError as exc:
            for line in str(exc).splitlines():
                _log.error("configuration rejected: %s", line)
            self._notifier.ready("configuration rejected (see the log); still running the previous one")
            return None
        _log.info("configuration reloaded")
        return settings


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits at most `seconds` for `event`; whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def answer_of(
    call: Coroutine[Any, Any, T], files: str, is_blamed: Callable[[], bool] = lambda: True
) -> T:
    """Result of `call`, which works on `files`: one WARNING names them while they do not answer.

    `is_blamed`: whether `call` waits for them.
    """
    working = asyncio.ensure_future(call)
    try:
        await asyncio.wait({working}, timeout=HUNG_SECONDS)
        if not working.done() and is_blamed():
            _log.warning("%s has not answered for %.0f s; waiting for it", files, HUNG_SECONDS)
            await asyncio.wait({working})
            _log.info("%s answers again", files)
        return await working
    finally:
        working.cancel()
