"""The `layers` contracts of import-linter: one for each part, every package and module in a layer."""

import re
import tomllib
from typing import Any

import pytest

from tests.house.source import PACKAGES, ROOT
from tests.house.test_packages import rooms

CONFIGURED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def contract(package: str) -> dict[str, Any]:
    """The contract that orders the rooms of a package."""
    (found,) = (each for each in CONFIGURED["contracts"] if each.get("containers") == [package])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_has_a_layer(package: str) -> None:
    found = contract(package)
    assert (found["type"], found["exhaustive"]) == ("layers", True)
    assert not {"exhaustive_ignores", "ignore_imports", "unmatched_ignore_imports_alerting"} & found.keys()
    named = [name for layer in found["layers"] for name in re.split(r"\s*[|:]\s*", layer)]
    assert len(named) == len(set(named))
    assert set(named) == rooms(package) - {"__init__"}


def test_all_parts_are_looked_at() -> None:
    assert set(CONFIGURED["root_packages"]) == set(PACKAGES)
