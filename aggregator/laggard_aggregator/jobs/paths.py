"""Paths of nodes to their targets: the forwarders of a site.

The file is an LWFS map: a line `node,forwarder` for each node, `#` begins a comment.
"""

from collections.abc import Mapping
from pathlib import Path

from laggard_common.errors import InputError

MAX_BYTES = 64 * 1024**2


def read_forwarders(path: Path) -> Mapping[str, str]:
    """The forwarder of each node. Raises InputError for a file that cannot be used."""
    with InputError.from_os_errors(path), path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(str(path), f"has more than {MAX_BYTES} bytes")
    found: dict[str, str] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        node, comma, forwarder = (part.strip() for part in text.partition(","))
        if not node or not comma or not forwarder:
            raise InputError(str(path), f"line {number}: expected node,forwarder, got {text[:100]!r}")
        if found.setdefault(node, forwarder) != forwarder:
            raise InputError(str(path), f"line {number}: {node} has two forwarders")
    return found
