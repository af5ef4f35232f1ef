"""The plot of a report, drawn by a child process (`picture`) in bounded time, where there can be one."""

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.notify.report import Report
from laggard_aggregator.notify.text import plain

_log = logging.getLogger(__name__)

DRAW_SECONDS = 60.0
MAX_BYTES = 1024 * 1024
MAX_NAME_CHARS = 40
PROGRAM = "laggard_aggregator.notify.email.plot_process"


async def drawn(report: Report) -> bytes | None:
    """A PNG of the report's course, None when there is too little to see or it cannot be drawn.

    Why it cannot is a WARNING, as a mail without it still says all.
    """
    course = report.course
    if course is None or not np.isfinite(course.own).any():
        return None
    asked = {
        "name": plain(report.name, MAX_NAME_CHARS),
        "metric": report.metric,
        "unit": report.unit,
        "since": report.case.since,
        "end": course.end.tolist(),
        **{key: _listed(getattr(course, key)) for key in ("own", "low", "middle", "high")},
    }
    try:
        with TemporaryDirectory(prefix="laggard-", ignore_cleanup_errors=True) as scratch:
            return await _child(json.dumps(asked).encode(), scratch)
    except OSError as exc:
        _log.warning("a mail goes without its plot: %s", exc.strerror or exc)
        return None


async def _child(asked: bytes, scratch: str) -> bytes | None:
    """Raises OSError where no process can be started."""
    environment = {"MPLCONFIGDIR": scratch, "HOME": scratch, "PATH": os.environ.get("PATH", os.defpath)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=Path(scratch),
    )
    try:
        async with asyncio.timeout(DRAW_SECONDS):
            picture, said = await process.communicate(asked)
    except TimeoutError:
        _log.warning("a mail goes without its plot: it took more than %.0f s", DRAW_SECONDS)
        return None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode or not picture.startswith(b"\x89PNG") or len(picture) > MAX_BYTES:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        _log.warning("a mail goes without its plot: %s", plain(last) or "nothing was drawn")
        return None
    return picture


def _listed(values: FloatArray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
