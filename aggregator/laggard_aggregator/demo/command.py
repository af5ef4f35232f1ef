"""`laggard demo`: replays a recorded run of twelve LUNs through real agents, broker and aggregator.

Each agent is a process started with `--config`, as on a site; broker and aggregator run in this process.
"""

import argparse
import asyncio
import logging
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from laggard_aggregator.cli.options import positive
from laggard_aggregator.demo.recording import PACKAGED, SPEEDS, read_recording

DEFAULT_SPEED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard demo`."""
    parser.add_argument(
        "--once",
        action="store_true",
        help="end after the run: 0 when the slow LUN and no other was found, else 1",
    )
    parser.add_argument("--seconds", type=positive, metavar="N", help="end after N seconds at the latest")
    parser.add_argument(
        "--speed",
        type=int,
        choices=SPEEDS,
        default=DEFAULT_SPEED,
        help="recorded seconds a second (default %(default)s)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder with configuration, logs and archive of the run"
    )
    parser.add_argument(
        "--recording", type=Path, default=PACKAGED, metavar="FILE", help="another run than the packaged one"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the demo. With `--once` returns 1 when the findings are wrong. Raises LaggardError."""
    from rich.console import Console  # noqa: PLC0415 - not for the help

    from laggard_aggregator.demo.run import Demo  # noqa: PLC0415

    recording = read_recording(args.recording)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="laggard-demo-"))
        if not args.keep:
            stack.callback(shutil.rmtree, folder)
        logging.basicConfig(
            filename=folder / "aggregator.log",
            level=logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        demo = Demo(recording, folder, args.speed, Console(), keep=args.keep)
        return asyncio.run(_until_signalled(demo.run, args.once, args.seconds))


async def _until_signalled(
    run: Callable[[asyncio.Event, bool], Awaitable[int]], once: bool, seconds: float | None
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    if seconds is not None:
        loop.call_later(seconds, stop.set)
    return await run(stop, once)
