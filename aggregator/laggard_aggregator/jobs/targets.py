"""Targets of Lustre in names of components, such as `scratch-OST0042` in `scratch-OST0042-osc-ffff8801`."""

import re
from typing import Final

_TARGET: Final = re.compile(r"[A-Za-z0-9_]+-(?:OST|MDT)[0-9a-fA-F]{4}")


def targets(component: str) -> set[str]:
    """OSTs and MDTs that a name has in it; empty for a component of another kind."""
    return set(_TARGET.findall(component))
