"""`laggard-agent --dump DIR`: copies the raw files that the enabled collectors read.

`DIR/proc`, `DIR/sys` and `DIR/debugfs` are roots for `--procfs`, `--sysfs` and `--debugfs`; files outside the
roots (of gluster and lwfs) are in `DIR/files` under their full path. `DIR/MANIFEST` lists copied files, and
files not copied with the reason. The configuration is not copied.
"""

import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from laggard_agent.collectors.interface import Roots, recorded_by
from laggard_agent.collectors.registry import make_collector
from laggard_agent.sampling.sampler import collect
from laggard_agent.settings import AgentSettings
from laggard_common import __version__
from laggard_common.clock import Clock
from laggard_common.errors import InputError, ServiceError
from laggard_common.visible import visible

MOST_BYTES = 1024 * 1024 * 1024
_MANIFEST = "MANIFEST"


def dump(settings: AgentSettings, roots: Roots, clock: Clock, folder: Path) -> tuple[str, dict[str, str]]:
    """Reads every enabled collector once into `folder`, which must be missing or empty.

    Returns a summary, and the error of each failed collector. Raises InputError for an unusable folder,
    ServiceError when a file cannot be written.
    """
    _prepare(folder)
    trees = {"proc": roots.procfs, "sys": roots.sysfs, "debugfs": roots.debugfs}
    copier = Copier(folder, {name: root for name, root in trees.items() if root is not None})
    failed = {}
    with recorded_by(copier):
        for name in settings.collectors:
            collector = make_collector(name, settings.tables, roots, clock.wall_ns, clock)
            health = collect(collector, clock).health
            if not health.success:
                failed[name] = health.error
    copier.finish(_head(settings, copier.trees, clock), failed)
    missing = f", {len(copier.not_copied)} not read (see MANIFEST)" if copier.not_copied else ""
    return f"{len(copier.copied)} files, {sum(copier.copied.values())} bytes{missing}", failed


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(str(folder), "is not empty")
    except OSError as exc:
        reason = "is not a directory" if isinstance(exc, FileExistsError) else exc.strerror or str(exc)
        raise InputError(str(folder), reason) from exc


def _head(settings: AgentSettings, trees: dict[str, str], clock: Clock) -> list[str]:
    at = datetime.fromtimestamp(clock.wall_ns() // 10**9, UTC)
    options = "".join(f" --{name}{'' if name == 'debugfs' else 'fs'} {name}" for name in trees)
    return [
        f"# laggard-agent {__version__}, node {settings.node}, {platform.system()} {platform.release()}",
        f"# {at:%Y-%m-%dT%H:%M:%SZ}",
        f"# laggard-agent --once --collectors {','.join(settings.collectors)}{options}",
        *(f"# {name} was {visible(root)}" for name, root in trees.items()),
    ]


class Copier:
    """Copies recorded reads into `folder` at once, and keeps the first write error.

    `trees`: folders below `folder` and their roots; of nested roots the innermost counts. `copied`: bytes of
    each file; `not_copied`: the reason for each other file.
    """

    def __init__(self, folder: Path, trees: dict[str, Path]) -> None:
        self._folder = folder
        self.trees = {name: os.path.abspath(root) for name, root in trees.items()}  # noqa: PTH100 - links stay
        self._innermost = sorted(self.trees.items(), key=lambda tree: -len(tree[1]))
        self.copied: dict[str, int] = {}
        self.not_copied: dict[str, str] = {}
        self._named: dict[str, None] = {}
        self._total_bytes = 0
        self._error: OSError | None = None

    def read(self, path: str, data: bytes) -> None:
        """As `Recorder`. The last read of a file counts."""
        name = self._name(path)
        total = self._total_bytes - self.copied.get(name, 0) + len(data)
        if total > MOST_BYTES:
            self.not_copied.setdefault(name, f"{len(data)} bytes more than the {MOST_BYTES} of a dump")
        elif self._write(name, data, path):
            self._total_bytes = total
            self.copied[name] = len(data)
            self._named.pop(name, None)

    def not_read(self, path: str, reason: str) -> None:
        """As `Recorder`."""
        self.not_copied.setdefault(self._name(path), reason)

    def named(self, path: str, *, is_folder: bool) -> None:
        """As `Recorder`."""
        name = self._name(path)
        if is_folder:
            self._write(name)
        elif name not in self.copied and self._write(name, b""):
            self._named[name] = None

    def finish(self, head: list[str], failed: dict[str, str]) -> None:
        """Creates the roots, and the MANIFEST under `head`. Raises the first write error as ServiceError."""
        for name in self.trees:
            self._write(name)
        lines = [
            *head,
            *(f"copied\t{visible(name)}\t{size}" for name, size in sorted(self.copied.items())),
            *(f"name only\t{visible(name)}" for name in sorted(self._named)),
            *(f"not read\t{visible(name)}\t{reason}" for name, reason in sorted(self.not_copied.items())),
            *(f"failed\t{collector}\t{visible(error)}" for collector, error in failed.items()),
        ]
        self._write(_MANIFEST, "".join(f"{line}\n" for line in lines).encode())
        if self._error is not None:
            reason = self._error.strerror or str(self._error)
            raise ServiceError(f"--dump: {self._folder}: {reason}; the dump is not whole") from self._error

    def _name(self, path: str) -> str:
        """Place of a path in the dump; `..` never leaves it."""
        whole = os.path.abspath(path)  # noqa: PTH100 - links stay
        for name, root in self._innermost:
            if whole.startswith(root.rstrip("/") + "/"):
                return f"{name}/{whole[len(root.rstrip('/')) + 1 :]}"
            if whole == root:
                return name
        return f"files{whole}"

    def _write(self, name: str, data: bytes | None = None, source: str | None = None) -> bool:
        """Writes a file, or a folder without `data`; True if written.

        Keeps the times of `source`: gluster's are meaningful.
        """
        if self._error is not None:
            return False
        path = self._folder / name
        try:
            (path if data is None else path.parent).mkdir(parents=True, exist_ok=True)
            if data is not None:
                path.write_bytes(data)
        except OSError as exc:
            self._error = exc
            return False
        if source is not None:
            with suppress(OSError):  # removed since the read
                status = os.stat(source)  # noqa: PTH116 - strings are what there is
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return True
