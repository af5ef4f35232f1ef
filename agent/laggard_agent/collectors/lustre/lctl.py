"""Reads a saved output of `lctl get_param` in place of the trees, for support cases.

A parameter is a line `name=value`, or a line `name=` and the lines after it. The last occurrence of a name
counts (a file may hold several commands). Parameters that are not in the file are not errors.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from laggard_agent.collectors.interface import read_file
from laggard_agent.collectors.lustre.param_paths import MOST_FILE_BYTES, Located

_HEAD = re.compile(rb"^([A-Za-z0-9_][^\s=]*)=(.*)$", re.MULTILINE)


def parse_dump(data: bytes) -> dict[str, bytes]:
    """Text of each parameter by name, such as `obdfilter.scratch-OST0000.stats`. Raises nothing."""
    heads = list(_HEAD.finditer(data))
    ends = [*(head.start() for head in heads), len(data)][1:]
    return {
        head[1].decode("utf-8", "replace"): data[head.start(2) : end].lstrip(b"\r\n")
        for head, end in zip(heads, ends, strict=bool(heads))
    }


class ParamDump:
    """Parameters of a saved output; `refresh` reads the file again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parameters: dict[str, bytes] = {}

    def locate(self, kinds: Sequence[str], files: Sequence[str]) -> Located:
        """As `Parameters`."""
        found: dict[str, dict[str, str]] = {}
        for kind in kinds:
            prefix = kind.replace("/", ".") + "."
            for name in self._parameters:
                if name.startswith(prefix):
                    device, _, file = name[len(prefix) :].partition(".")
                    if file:
                        places = found.setdefault(device, {})
                        if file in files:
                            places.setdefault(file, name)
        return Located(found, (), partial=True)

    def find(self, file: str) -> str | None:
        """As `Parameters`."""
        return file if file in self._parameters else None

    def read(self, place: str) -> bytes:
        """As `Parameters`."""
        return self._parameters[place]

    def roots(self) -> str:
        """As `Parameters`."""
        return str(self._path)

    def refresh(self) -> None:
        """Reads the file. Raises CollectError."""
        self._parameters = parse_dump(read_file(self._path, MOST_FILE_BYTES))
