"""Which brick of which volume a dump belongs to, from names of files alone, so that no root is needed.

A dump's name has the brick's path with `_` for every `/`; glusterd's `vols/<volume>/bricks/<host>:<path>` has
it with `-` for every `/`. Where one says `_` and the other `-`, the path has a `/`.
"""

from collections.abc import Iterable


def brick_path(dump_name: str, bricks: Iterable[tuple[str, str]]) -> tuple[str, str | None]:
    """The path and the volume of the brick whose dump is called so; `bricks`: volume and name of each file.

    Where no file fits, or files of different paths do, the path is that of the dump, with `_`; where files
    of several volumes do (the same path on several servers), the volume is None.
    """
    found = {(path, volume) for volume, name in bricks if (path := _merged(dump_name, name)) is not None}
    paths = {path for path, _ in found}
    volumes = {volume for _, volume in found}
    if len(paths) != 1:
        return dump_name, None
    return paths.pop(), volumes.pop() if len(volumes) == 1 else None


def _merged(dump_name: str, brick_name: str) -> str | None:
    """The path that became both names; None if none did."""
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
