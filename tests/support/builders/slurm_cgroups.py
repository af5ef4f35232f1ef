"""A /sys with Slurm's control groups from a fixture, and the collector `cgroup` over it."""

import os
import shutil
from pathlib import Path
from typing import Any

from laggard_agent.collectors.cgroup.collector import Cgroup, CgroupSettings
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "cgroup"
SLUID = "sDNN9KTRV0EG00"


def unpack(fixture: Path, root: Path) -> None:
    """Writes the files of a fixture: `path:` begins a file, `path/:` a folder, a tab a line of the file."""
    file: Path | None = None
    for line in fixture.read_text().splitlines():
        if line.startswith("\t"):
            assert file is not None
            with file.open("a") as opened:
                opened.write(f"{line[1:]}\n")
            continue
        file = root / line.removesuffix(":").rstrip("/")
        (file if line.endswith("/:") else file.parent).mkdir(parents=True, exist_ok=True)


class Host:
    """A host with jobs. Methods return the host, so that steps can follow one another."""

    def __init__(
        self, root: Path, fixture: str, sampled: Sampled[Cgroup] | None = None, **settings: Any
    ) -> None:
        self.root = root
        self.scope = root / "fs/cgroup/system.slice/slurmstepd.scope"
        unpack(FIXTURES / f"{fixture}.txt", root)
        chosen = CgroupSettings(**settings)
        self.sampled = sampled or Sampled(
            lambda now, monotonic_ns: Cgroup(chosen, surroundings(now, monotonic_ns, sysfs=root))
        )

    def sample(self) -> "Host":
        """Takes a sample that does not fail."""
        assert self.sampled.sample().error == ""
        return self

    def ids(self) -> list[str]:
        """The jobs."""
        return self.sampled.ids("cgroup")

    def row(self, job: str) -> dict[str, int | float | None]:
        """The row of a job."""
        return self.sampled.row("cgroup", job)

    def node(self) -> dict[str, int | float | None]:
        """The node's own row."""
        return self.sampled.row("cgroup_node", "cgroup")

    def write(self, path: str, text: str) -> "Host":
        """A file of a job of v2 gets other content."""
        (self.scope / f"job_{path}").write_text(text)
        return self

    def add(self, job: str, folder: str = "") -> "Host":
        """A job of v2 begins, in a folder of this name."""
        shutil.copytree(self.scope / "job_52", self.scope / (folder or f"job_{job}"))
        return self

    def remove(self, job: str) -> "Host":
        """A job of v2 ends."""
        shutil.rmtree(self.scope / (job if job == SLUID else f"job_{job}"))
        return self

    def replace(self, job: str) -> "Host":
        """A job of v2 ends and begins with the same number."""
        new = self.scope.parent / "new"
        shutil.copytree(self.scope / f"job_{job}", new)
        self.remove(job)
        os.rename(new, self.scope / f"job_{job}")  # noqa: PTH104
        return self
