"""What the tests of the `gluster` collector share."""

import lzma
import os
import shutil
from pathlib import Path

from laggard_agent.collectors.gluster.collector import Gluster, GlusterSettings
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "gluster"
BRICK = "glusterfsd__srv_gl_b_1_rep.dump"
CLIENT = "glusterfs_rep.dump"
PATH = "/srv/gl/b_1/rep"
WRITTEN = 1_763_000_000


def brick(number: int = 0) -> str:
    """The brick's dump number 0 to 3, one a second."""
    if number:
        return lzma.decompress((FIXTURES / "later" / f"brick.{number}.xz").read_bytes()).decode()
    return (FIXTURES / "one/stats" / BRICK).read_text()


def client() -> str:
    """The client's dump."""
    return (FIXTURES / "one/stats" / CLIENT).read_text()


class Folder:
    """A folder of glusterd that a collector looks at."""

    def __init__(self, root: Path, *files: str) -> None:
        self.root = Path(shutil.copytree(FIXTURES / "one", root / "glusterd"))
        self.stats = self.root / "stats"
        for path in self.stats.iterdir():
            if path.name not in files:
                path.unlink()
            else:
                os.utime(path, (WRITTEN, WRITTEN))
        settings = GlusterSettings(self.root)
        self.sampled = Sampled(lambda now, monotonic_ns: Gluster(settings, surroundings(now, monotonic_ns)))

    def write(self, text: str | bytes, name: str = BRICK, seconds: float = 0.0) -> "Folder":
        """A dump is written, so many seconds after the first one."""
        path = self.stats / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.utime(path, (WRITTEN + seconds, WRITTEN + seconds))
        return self

    def node(self, field: str) -> int | float | None:
        """A value of the node's own row."""
        return self.sampled.row("gluster", "gluster")[field]

    def brick(self) -> dict[str, int | float | None]:
        """The brick's row."""
        return self.sampled.row("gluster_brick", PATH)
