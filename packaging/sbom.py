"""A bill of materials (CycloneDX 1.5, JSON) of a package: each distribution in its environment.

It has no time and no serial number, so that the same wheels give the same bytes. `python packaging/sbom.py
PACKAGE SITE-PACKAGES WHEELS` prints it, for an image.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

NAME = "sbom.cdx.json"


def bill(package: str, site: Path, wheels: Path) -> str:
    """The bill of `package`, whose environment is `site`, installed from `wheels`."""
    hashes = {_wheel_of(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels.glob("*.whl")}
    found = sorted(_components(site, hashes), key=lambda component: str(component["purl"]))
    own = next(component for component in found if component["name"] == "laggard")
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "component": {"type": "application", "name": package, "version": own["version"]},
            },
            "components": found,
        },
        indent=1,
    )


def _components(site: Path, hashes: dict[tuple[str, str], str]) -> Iterator[dict[str, Any]]:
    for each in distributions(path=[str(site)]):
        name = each.name.lower().replace("_", "-").replace(".", "-")
        component: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": each.version,
            "purl": f"pkg:pypi/{name}@{each.version}",
        }
        if licence := _licence(each):
            component["licenses"] = [licence]
        if (content := hashes.get((name, each.version))) is not None:
            component["hashes"] = [{"alg": "SHA-256", "content": content}]
        yield component


def _licence(distribution: Distribution) -> dict[str, Any] | None:
    """As the distribution says: an expression of SPDX, else the first line of its text; None without any."""
    told = distribution.metadata
    if expression := told.get_all("License-Expression"):
        return {"expression": expression[0]}
    lines = "".join(told.get_all("License") or ()).strip().splitlines()
    named = [each.rpartition(" :: ")[2] for each in told.get_all("Classifier") or () if each[:7] == "License"]
    name = next(iter([*named, *lines]), "")
    return {"license": {"name": name[:100]}} if name else None


def _wheel_of(path: Path) -> tuple[str, str]:
    name, version, *_ = path.name.split("-")
    return name.lower().replace("_", "-").replace(".", "-"), version


if __name__ == "__main__":
    print(bill(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
