"""Folders of Slurm's jobs among the control groups of this host.

v1 (Slurm's plugin cgroup/v1): `<controller>/slurm/uid_U/job_J`, with `slurm_NODE` where slurmd is built for
several nodes a host. v2: `system.slice/slurmstepd.scope/job_J`, or `NODE_slurmstepd.scope`. From 26.05 on a
job's folder is its SLUID (`s` and 13 digits of Crockford's base 32), unless cgroup.conf has
`CgroupJobIdPaths=yes`. Folders of steps and tasks lie below and are no jobs.
"""

import errno
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from laggard_agent.collectors.interface import ABSENT, unreadable

GONE = (*ABSENT, errno.ENODEV)

_NODE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_JOB = re.compile(r"job_([1-9][0-9]{0,9})|(s[0-9A-HJKMNP-TV-Z]{13})")
_V1_ROOT = re.compile(rf"slurm(?:_({_NODE}))?")
_V1_USER = re.compile(r"uid_([0-9]{1,10})")
_V2_ROOT = re.compile(rf"(?:({_NODE})_)?slurmstepd\.scope")
_V1_LISTED = ("freezer", "memory", "cpuacct", "cpuset", "devices")
"""Controllers of v1 in which Slurm has folders; the first one that has any is listed."""
_MOST_ENTRIES = 16_384
_SEARCH_NS = 10 * 10**9


class JobFolder(NamedTuple):
    """A job's folder as listed.

    `node`: Slurm's name of the node, empty where the path lacks it. `job`: its number, else its SLUID. `uid`:
    None in v2, whose paths lack it. `inode`: unique among the control groups since boot. `below`: the path
    within the tree, which is the same for each controller of v1.
    """

    node: str
    job: str
    uid: int | None
    inode: int
    path: str
    below: str

    @property
    def id(self) -> str:
        """Id of the job on this host."""
        return f"{self.node}/{self.job}" if self.node else self.job


class SlurmTree:
    """Slurm's folders below `root` (`/sys/fs/cgroup`). `found`: whether there are any.

    Slurm's own folders are searched for again when a folder that may have them changes, and every ten
    seconds; those below at each call.
    """

    def __init__(self, root: Path) -> None:
        self._v2 = [f"{tree}/system.slice" for tree in (str(root), f"{root}/unified")]
        self._v1 = [f"{root}/{controller}" for controller in _V1_LISTED]
        self._roots: list[tuple[str, str, str]] = []  # path, path within the tree, node
        self._state: list[tuple[int, int, int] | None] = []
        self._until_ns = 0

    @property
    def found(self) -> bool:
        """Whether Slurm has folders."""
        return bool(self._roots)

    def jobs(self, now_ns: int) -> list[JobFolder]:
        """The folders of jobs. Raises CollectError for a folder that cannot be listed."""
        state = [_state(path) for path in (*self._v2, *self._v1)]
        if state != self._state or now_ns >= self._until_ns:
            self._roots = self._find()
            self._state, self._until_ns = state, now_ns + _SEARCH_NS
        jobs: list[JobFolder] = []
        for path, below, node in self._roots:
            if below.startswith("system.slice/"):
                jobs += _jobs(path, below, node, None)
            else:
                jobs += _jobs_of_users(path, below, node)
        return jobs

    def _find(self) -> list[tuple[str, str, str]]:
        v2 = [root for tree in self._v2 for root in _matches(tree, "system.slice/", _V2_ROOT)]
        return v2 or next(filter(None, (list(_matches(tree, "", _V1_ROOT)) for tree in self._v1)), [])


def _matches(tree: str, below: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    for name, _ in _entries(tree):
        if found := pattern.fullmatch(name):
            yield f"{tree}/{name}", f"{below}{name}", found[1] or ""


def _state(folder: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(folder)  # noqa: PTH116 - strings are faster
    except OSError:
        return None
    return found.st_ino, found.st_nlink, found.st_mtime_ns


def _jobs_of_users(path: str, slurm: str, node: str) -> Iterator[JobFolder]:
    for name, _ in _entries(path):
        if found := _V1_USER.fullmatch(name):
            yield from _jobs(f"{path}/{name}", f"{slurm}/{name}", node, int(found[1]))


def _jobs(path: str, below: str, node: str, uid: int | None) -> Iterator[JobFolder]:
    for name, inode in _entries(path):
        if found := _JOB.fullmatch(name):
            yield JobFolder(node, found[1] or found[2], uid, inode, f"{path}/{name}", f"{below}/{name}")


def _entries(folder: str) -> list[tuple[str, int]]:
    """Names and inodes of the folders in a folder; none where it is missing or vanishes meanwhile.

    Raises CollectError.
    """
    try:
        with os.scandir(folder) as entries:
            listed = islice(entries, _MOST_ENTRIES)
            return [(entry.name, entry.inode()) for entry in listed if entry.is_dir(follow_symlinks=False)]
    except OSError as exc:
        if exc.errno in GONE:
            return []
        raise unreadable(folder, exc) from exc
