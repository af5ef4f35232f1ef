"""What the tests of the `lustre` collector share."""

import shutil
from pathlib import Path
from typing import Any

from laggard_agent.collectors.lustre.collector import LustreCollector, LustreSettings
from laggard_agent.collectors.lustre.param_paths import Parameters, Trees
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "lustre"


def trees(root: Path) -> Trees:
    """The trees below `root`, laid out as on a host."""
    return Trees(root / "proc", root / "sys", root / "sys/kernel/debug")


def copied(name: str, folder: Path) -> Path:
    """A fixture that may be changed."""
    return Path(shutil.copytree(FIXTURES / name, folder / name))


class Watched(Sampled[LustreCollector]):
    """The collector, sampled by hand."""

    def __init__(self, parameters: Parameters, **options: Any) -> None:
        settings = LustreSettings(**options)
        super().__init__(
            lambda now, monotonic_ns: LustreCollector(settings, surroundings(now, monotonic_ns), parameters)
        )

    def node(self, field: str) -> int | float | None:
        """A value of the node's own row."""
        return self.row("lustre", "lustre")[field]
