"""Pictures for the documentation, small."""

from pathlib import Path

import PIL.Image

MAX_BYTES = 150_000


def shrink(path: Path) -> int:
    """Writes a picture again with 128 colours, which is all that it has to tell; its size in bytes."""
    with PIL.Image.open(path) as picture:
        few = picture.convert("RGB").quantize(128, dither=PIL.Image.Dither.NONE)
    few.save(path, optimize=True)
    return path.stat().st_size
