"""What the agent's tests are made of: a clock that is told the time, and fake trees."""

from pathlib import Path

from laggard_common.wire.schema import Component, Field

FIELDS = (Field("a"), Field("b"))


def components(*names: str) -> tuple[Component, ...]:
    """Components whose id is their name."""
    return tuple(Component(name, name) for name in names)


def tree(root: Path, files: dict[str, str]) -> Path:
    """Writes `files` (path -> text) below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def disk_line(name: str, *values: int, minor: int = 0) -> str:
    """A line of /proc/diskstats, right-aligned as the kernel does it."""
    return f"{8:4d} {minor:7d} {name} {' '.join(map(str, values))}\n"
