"""Puts the agent's compiled part into the wheel where `make native` has built it.

Such a wheel is for one architecture and glibc 2.17 or later, and needs no compiler; nor does a wheel without.
"""

import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "agent/laggard_agent/liblaggardcapture.so"


class CompiledPart(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling asks before it builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds to a wheel that is to be installed; an editable one finds the file where it is."""
        if version == "standard" and Path(self.root, LIBRARY).is_file():
            build_data["artifacts"].append(LIBRARY)
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-manylinux_2_17_{platform.machine()}"
