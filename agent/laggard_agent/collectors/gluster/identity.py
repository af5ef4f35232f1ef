"""Finds a dump's brick and volume from file names alone, so root is not needed.

A dump's name has the brick's path with `_` for every `/`; glusterd's `vols/<volume>/bricks/<host>:<path>` has
it with `-` for every `/`. Where one has `_` and the other `-`, the path has a `/`.
"""

from collections.abc import Iterable


def brick_path(dump_name: str, bricks: Iterable[tuple[str, str]]) -> tuple[str, str | None]:
    """Path and volume of the brick with this dump name; `bricks`: volume and name of each brick file.

    Without a match, or with matches of different paths, the path is the dump's, with `_`; with matches of
    several volumes (the same path on several servers) the volume is None.
    """
    found = {(path, volume) for volume, name in bricks if (path := _merged(dump_name, name)) is not None}
    paths = {path for path, _ in found}
    volumes = {volume for _, volume in found}
    if len(paths) != 1:
        return dump_name, None
    return paths.pop(), volumes.pop() if len(volumes) == 1 else None


def _merged(dump_name: str, brick_name: str) -> str | None:
    """The path that yields both names; None without one."""
    dashed = brick_name.partition(":-")[2]
    if brick_name.count(":") > 1:  # an IPv6 address
        dashed = brick_name.rpartition(":-")[2]
    if len(dashed) + 1 != len(dump_name):
        return None
    path = []
    for in_dump, in_brick in zip(dump_name, f"-{dashed}", strict=True):
        if in_dump == in_brick:
            path.append(in_dump)
        elif in_dump == "_" and in_brick == "-":
            path.append("/")
        else:
            return None
    return "".join(path)
