"""Packages of others that add collectors, detectors and channels, by their entry points.

An entry point of the group `laggard.collectors`, `laggard.detectors` or `laggard.channels` has the name of
the new part. Its value is a package laid out like a folder of Laggard's own, with a module `collector`,
`detector` or `channel` (https://packaging.python.org/en/latest/specifications/entry-points/).
`importlib.metadata` is not used: it costs an agent 1 MiB.
"""

import importlib
import re
import sys
from functools import cache
from glob import escape, glob
from types import ModuleType

from laggard_common.errors import ConfigError

MAX_BYTES = 64 * 1024
OWN = ("laggard_agent", "laggard_aggregator")
_LINE = re.compile(r"([A-Za-z][\w.-]{0,63})\s*=\s*([A-Za-z_][\w.]*)", re.ASCII)


@cache
def extensions(group: str) -> dict[str, str]:
    """Packages by name of the entry points of `group`, the first on `sys.path` of each name."""
    packages: dict[str, str] = {}
    for folder in sys.path:
        for path in sorted(glob(f"{escape(folder or '.')}/*.dist-info/entry_points.txt")):  # noqa: PTH207
            for name, package in _entries(path, group).items():
                packages.setdefault(name, package)
    return packages


def _entries(path: str, group: str) -> dict[str, str]:
    """Entry points of the group in one distribution's file; none where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - the analysis is free of pathlib
            lines = file.read(MAX_BYTES).splitlines()
    except OSError:
        return {}
    entries: dict[str, str] = {}
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif section == f"[{group}]" and (match := _LINE.fullmatch(line)):
            entries[match[1]] = match[2]
    return entries


def load(package: str, module: str) -> ModuleType:
    """The package's module. Raises ConfigError for a package of others that cannot be imported."""
    name = f"{package}.{module}" if module else package
    if package.partition(".")[0] in OWN:
        return importlib.import_module(name)
    try:
        return importlib.import_module(name)
    except Exception as exc:
        raise ConfigError("", [f"the extension {name} cannot be used: {type(exc).__name__}: {exc}"]) from exc
