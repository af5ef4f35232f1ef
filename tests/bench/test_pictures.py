"""The documentation's pictures show the pages as they are."""

import json
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the pictures' script needs playwright")

from bench.pictures import page, shrink

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("name", page.pictures())
def test_a_picture_is_no_older_than_its_page(name: str) -> None:
    made = json.loads((PICTURES / page.MADE_FROM).read_text())
    assert made[name] == page.sources(name), "take them again: python -m bench.pictures.page docs/pictures"
    assert (PICTURES / f"{name}.png").stat().st_size <= shrink.MAX_BYTES
