"""A file system on a loop device of its own, for tests as root."""

import os
from pathlib import Path

from tests.support.processes import run_command
from tests.support.wait import wait_until

BLKIO = Path("/sys/fs/cgroup/blkio")


def run(*words: str | Path) -> str:
    return run_command(words).stdout.strip()


class LoopFileSystem:
    """ext4 on a loop device with direct I/O, on a file."""

    def __init__(self, image: Path, folder: Path, mebibytes: int) -> None:
        self.folder, self.image = folder, image
        folder.mkdir()
        with image.open("wb") as file:
            file.write(os.urandom(1 << 20) * mebibytes)
            os.fsync(file.fileno())
        self.device = run("losetup", "--find", "--show", "--direct-io=on", image)
        try:
            run(
                "mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", self.device
            )
            run("mount", self.device, folder)
        except AssertionError:  # of run_command
            run("losetup", "--detach", self.device)
            raise

    @property
    def number(self) -> str:
        """Device number as blkio has it."""
        known = Path(self.device).stat().st_rdev
        return f"{os.major(known)}:{os.minor(known)}"

    def uncached(self) -> None:
        """Empties the cache of its files."""
        run("umount", self.folder)
        run("mount", self.device, self.folder)

    def close(self) -> None:
        """Gives everything back, also where one step fails."""
        try:
            run("umount", self.folder)
        finally:
            try:
                run("losetup", "--detach", self.device)
                backing = Path("/sys/block") / Path(self.device).name / "loop" / "backing_file"
                wait_until(lambda: not backing.exists(), "the end of the loop device")
            finally:
                self.image.unlink()
