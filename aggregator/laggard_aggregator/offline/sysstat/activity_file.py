"""Activity files (`saDD`), through sysstat's own `sadf`, whose format changes with its version."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.offline.sysstat.report import Report
from laggard_common.errors import InputError

MAGIC = (b"\x96\xd5", b"\xd5\x96")
_TIMEOUT_SECONDS = 600
_MAX_CHARS = 200


def printed(report: Report) -> bytes:
    """Output of `sadf -j`; the file is converted first where sadf requires it.

    Complaints of sadf while it prints are a remark. Raises InputError when it prints nothing.
    """
    path = report.path
    sadf = shutil.which("sadf")
    if sadf is None:
        raise InputError(str(path), "a sysstat activity file: reading it needs sadf (install sysstat)")
    with _plain(path) as plain:
        run = _run([sadf, "-j", str(plain), "--", "-d"], path)
        if run.returncode and b"sadf -c" in run.stderr + run.stdout:
            with tempfile.TemporaryDirectory(prefix="laggard-") as folder:
                converted = Path(folder) / "converted"
                conversion = _run([sadf, "-c", str(plain)], path)
                if conversion.returncode:
                    raise InputError(
                        str(path),
                        f"sadf -c failed ({_ending(conversion)}): convert it with another version of sysstat",
                    )
                converted.write_bytes(conversion.stdout)
                run = _run([sadf, "-j", str(converted), "--", "-d"], path)
        complaint = _complaint(run, plain, path)
    if b'"disk-device"' in run.stdout:
        if complaint or run.returncode:
            report.remark(f"sadf: {complaint or _ending(run)}: read as far as it goes")
    elif run.returncode:
        raise InputError(str(path), f"sadf cannot read it: {complaint or _ending(run)}")
    return run.stdout


def _complaint(run: subprocess.CompletedProcess[bytes], plain: Path, path: Path) -> str:
    """The first line of sadf's standard error, with the name of the user's file."""
    text = run.stderr or (b"" if run.stdout.lstrip().startswith(b"{") else run.stdout)
    first = text.decode(errors="replace").strip().partition("\n")[0]
    return first.replace(str(plain), path.name)[:_MAX_CHARS]


def _ending(run: subprocess.CompletedProcess[bytes]) -> str:
    if run.returncode >= 0:
        return f"exit code {run.returncode}"
    return f"signal {-run.returncode}, {signal.Signals(-run.returncode).name}"


def _run(command: list[str], path: Path) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            env={**os.environ, "LC_ALL": "C", "S_TIME_FORMAT": "ISO", "TZ": "UTC"},
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise InputError(str(path), f"sadf cannot be run: {exc}") from exc


@contextmanager
def _plain(path: Path) -> Iterator[Path]:
    """The file itself, or a decompressed copy of it in a temporary folder."""
    with path.open("rb") as file:
        if file.read(2) in MAGIC:
            yield path
            return
    with tempfile.TemporaryDirectory(prefix="laggard-") as folder:
        copy = Path(folder) / path.stem
        with open_input(path, cut=lambda _: None) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield copy
