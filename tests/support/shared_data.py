"""Further captures that may lie beside the project; tests over them skip where they do not."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared(path: str) -> Path:
    """The path of a capture below `shared/data` beside the project; skips the test where it is missing."""
    found = ROOT / path
    if not found.exists():
        pytest.skip(f"no shared/data/{path} beside the project")
    return found
