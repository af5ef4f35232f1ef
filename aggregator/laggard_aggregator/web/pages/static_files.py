"""Static files of the pages: read once, with content-based names for caching."""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.exposition import gzip_accepted
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER = "private, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes
    content_type: str
    version: str


class StaticFiles:
    """Files of the folder `static` with an allowed type."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(_FOLDER).as_posix(): _read(path)
            for path in sorted(_FOLDER.rglob("*"))
            if path.suffix in _TYPES
        }

    def url(self, name: str) -> str:
        """URL of a file, which changes with its contents."""
        return f"/static/{name}?v={self._files[name].version}"

    async def answer(self, request: Request) -> Response:
        """Serves one file; its versioned URL may be cached forever."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        kept = request.query_params.get("v") == file.version
        headers = {
            "content-type": file.content_type,
            "cache-control": _FOR_EVER if kept else "no-cache",
            "vary": "accept-encoding",
        }
        if gzip_accepted(request.headers.get("accept-encoding", "")):
            return Response(file.packed, headers=headers | {"content-encoding": "gzip"})
        return Response(file.body, headers=headers)


def _read(path: Path) -> _File:
    body = path.read_bytes()
    version = hashlib.sha256(body).hexdigest()[:12]
    return _File(body, gzip.compress(body, 9, mtime=0), _TYPES[path.suffix], version)
