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
_State = tuple[int, int, int]
"""Inode of a folder, links (of which each folder within has one) and time of change."""


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
    """Slurm's folders below `root` (`/sys/fs/cgroup`). `exists`: whether there are any.

    They are listed again when a folder that has them, or may have them, gained or lost one, when a job is
    gone (another may have come in its place), and every ten seconds.
    """

    def __init__(self, root: Path) -> None:
        self._v2 = [f"{tree}/system.slice" for tree in (str(root), f"{root}/unified")]
        self._v1 = [f"{root}/{controller}" for controller in _V1_LISTED]
        self._found = False
        self._jobs: list[JobFolder] = []
        self._listed: dict[str, _State | None] = {}
        self._until_ns = 0

    @property
    def exists(self) -> bool:
        """Whether Slurm has folders."""
        return self._found

    def jobs(self, now_ns: int, *, again: bool = False) -> list[JobFolder]:
        """The folders of jobs, the same list as before where nothing changed.

        `again`: a job is gone. Raises CollectError for a folder that cannot be listed.
        """
        listed = self._listed
        if again or now_ns >= self._until_ns or any(_state(path) != was for path, was in listed.items()):
            self._listed = {}
            self._until_ns = 0
            self._jobs = self._list()
            self._until_ns = now_ns + _SEARCH_NS
        return self._jobs

    def _list(self) -> list[JobFolder]:
        v2 = [root for tree in self._v2 for root in self._matches(tree, "system.slice/", _V2_ROOT)]
        v1 = (list(self._matches(tree, "", _V1_ROOT)) for tree in self._v1)
        roots = v2 or next(filter(None, v1), [])
        self._found = bool(roots)
        if roots:  # elsewhere nothing is expected sooner than the next search
            trees = {path.rpartition("/")[0] for path, _, _ in roots}
            self._listed = {tree: self._listed[tree] for tree in trees}
        jobs: list[JobFolder] = []
        for path, below, node in roots:
            if v2:
                jobs += self._jobs_in(path, below, node, None)
            else:
                for user, place, uid in self._matches(path, f"{below}/", _V1_USER):
                    jobs += self._jobs_in(user, place, node, int(uid))
        return jobs

    def _matches(self, tree: str, below: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
        """Yields path, path within the tree and the named part."""
        for name, _ in self._entries(tree):
            if match := pattern.fullmatch(name):
                yield f"{tree}/{name}", f"{below}{name}", match[1] or ""

    def _jobs_in(self, path: str, below: str, node: str, uid: int | None) -> Iterator[JobFolder]:
        for name, inode in self._entries(path):
            if match := _JOB.fullmatch(name):
                job = match[1] or match[2]
                yield JobFolder(node, job, uid, inode, f"{path}/{name}", f"{below}/{name}")

    def _entries(self, folder: str) -> list[tuple[str, int]]:
        """Names and inodes of the folders in a folder; none where it is missing or vanishes meanwhile.

        Raises CollectError.
        """
        self._listed[folder] = _state(folder)  # before it is listed: a later change shows
        try:
            with os.scandir(folder) as entries:
                listed = islice(entries, _MOST_ENTRIES)
                return [(e.name, e.inode()) for e in listed if e.is_dir(follow_symlinks=False)]
        except OSError as exc:
            if exc.errno in GONE:
                return []
            raise unreadable(folder, exc) from exc


def _state(folder: str) -> _State | None:
    try:
        status = os.stat(folder)  # noqa: PTH116 - strings are faster
    except OSError:
        return None
    return status.st_ino, status.st_nlink, status.st_mtime_ns
