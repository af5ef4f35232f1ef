"""The files that a job passes on its way to its page: `python -m bench.job_page [--archive DIR] [--job KEY]`.

The application answers `/jobs/<key>` once to warm up and once while `sys.setprofile` notes, in all threads,
each file of the product of which a function is entered. A stop is a file that the way enters from another
one; a turn back is a stop at a package of `jobs/` or at `archive/` that the way had left before. Without an
archive that of the goldens is used, with a job whose verdict is stored.

Only the application is named, so it runs on any version.
"""

import argparse
import asyncio
import json
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import quote

import httpx

import laggard_aggregator
from laggard_aggregator.web.app import make_app
from tests.golden import entry
from tests.golden.jobs import PACKED, SLOW
from tests.support.builders import live_status

ROOT = Path(str(laggard_aggregator.__file__)).parent


class Way:
    """Files in the order in which they are entered, while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.stops: list[str] = []
        self._known: dict[CodeType, str] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notes the files of this thread and of those that begin in the block."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self.on:
            return
        code = frame.f_code
        file = self._known.get(code)
        if file is None:
            path = Path(code.co_filename)
            file = self._known[code] = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        if file and (not self.stops or self.stops[-1] != file):
            self.stops.append(file)


def package(file: str) -> str:
    """The package of `jobs/`, or the top-level one."""
    parts = file.split("/")
    return "/".join(parts[:2]) if parts[0] == "jobs" and len(parts) > 2 else parts[0]


async def followed(archive: Path, job: str, way: Way) -> None:
    """Asks for the page twice, and notes the second way."""
    app = make_app(live_status.site(), archive)

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "principal": entry.PRINCIPALS["admin"]}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(call), base_url="http://l") as client:
        for on in (False, True):
            way.on = on
            answer = await client.get(f"/jobs/{quote(job, safe='')}")
            assert answer.status_code == 200, answer.text
    way.on = False


def main() -> None:
    """Prints the files, and how many there are."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="python -m bench.job_page")
    parser.add_argument("--archive", metavar="DIR", type=Path)
    parser.add_argument("--job", metavar="KEY", default=SLOW)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    way = Way()
    with tempfile.TemporaryDirectory() as folder:
        if args.archive is None:
            with tarfile.open(PACKED) as packed:
                packed.extractall(folder, filter="data")
        archive = args.archive or Path(folder)
        entry.refresh_index(archive)
        with way.watched():
            asyncio.run(followed(archive, args.job, way))
    files = list(dict.fromkeys(way.stops))
    rooms = [package(file) for file in way.stops]
    entered = [room for at, room in enumerate(rooms) if at == 0 or rooms[at - 1] != room]
    counts = {
        "files": len(files),
        "of jobs and archive": sum(file.startswith(("jobs/", "archive/", "mining/")) for file in files),
        "stops": len(way.stops),
        "packages": len(set(rooms)),
        "turns back": len(entered) - len(set(entered)),
    }
    if args.json:
        print(json.dumps(counts))
        return
    print("\n".join(files))
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
