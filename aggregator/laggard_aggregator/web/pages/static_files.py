"""The pages' own scripts, styles and pictures."""

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from starlette.exceptions import HTTPException

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_BUNDLES = {
    "page.js": ("zone.js", "heat.js", "live.js"),
    "charts.js": ("vendor/uplot/uPlot.iife.min.js", "chart.js", "copy.js"),
}
"""Scripts served as one file: fewer requests, and smaller when compressed together."""
_UNUSED = re.compile(rb"(?:^|\s+)// .*|^\s+", re.MULTILINE)
"""Comments, indentation and empty lines of an own script; none has a string with `//` between spaces."""
_FOR_EVER = "private, max-age=31536000, immutable"


@dataclass(frozen=True)
class _File:
    body: bytes
    content_type: str
    version: str

    @classmethod
    def of(cls, body: bytes, suffix: str) -> "_File":
        return cls(body, _TYPES[suffix], hashlib.sha256(body).hexdigest()[:12])

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.body, 9, mtime=0)


class StaticFiles:
    """Files of the folder `static` with an allowed type, and bundles of them.

    `urls`: address of each, which changes with its contents.
    """

    def __init__(self) -> None:
        self._files = {
            path.relative_to(_FOLDER).as_posix(): _File.of(path.read_bytes(), path.suffix)
            for path in sorted(_FOLDER.rglob("*"))
            if path.suffix in _TYPES
        }
        for name, parts in _BUNDLES.items():
            self._files[name] = _File.of(b"\n".join(self._part(part) for part in parts), ".js")
        self.urls = {name: f"/static/{name}?v={file.version}" for name, file in self._files.items()}

    def _part(self, name: str) -> bytes:
        """A script for a bundle; a vendored one as it was published."""
        body = self._files[name].body
        return body if name.startswith("vendor/") else _UNUSED.sub(b"", body).strip()

    def find(self, name: str, version: str) -> tuple[bytes, bytes, dict[str, str]]:
        """A file's body, plain and compressed, and its headers; the address in `urls` may be kept forever.

        Raises HTTPException.
        """
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404)
        headers = {
            "content-type": file.content_type,
            "cache-control": _FOR_EVER if version == file.version else "no-cache",
            "vary": "accept-encoding",
        }
        return file.body, file.packed, headers


@cache
def shipped_files() -> StaticFiles:
    """The files of this installation, read once."""
    return StaticFiles()
