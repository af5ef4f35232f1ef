"""Pictures for the documentation, small."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import PIL.Image

MAX_BYTES = 150_000


def shrink(path: Path) -> int:
    """Writes a picture again with 128 colours, which is all that it has to tell; its size in bytes."""
    with PIL.Image.open(path) as picture:
        few = picture.convert("RGB").quantize(128, dither=PIL.Image.Dither.NONE)
    few.save(path, optimize=True)
    return path.stat().st_size


def command(
    module: str,
    about: str | None,
    take: Callable[[Path], Coroutine[Any, Any, list[Path]]],
    argv: Sequence[str] | None,
) -> int:
    """`python -m bench.pictures.<module> FOLDER`: takes the pictures; 1 when one of them is too large."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.pictures.{module}", description=about)
    parser.add_argument("into", type=Path)
    into: Path = parser.parse_args(argv).into
    into.mkdir(parents=True, exist_ok=True)
    status = 0
    for path in asyncio.run(take(into)):
        size = path.stat().st_size
        print(f"{path}: {size:,} bytes")
        status |= size > MAX_BYTES
    return status
