"""Manual pages and completions, as wheels and packages carry them: the files of `packaging/share`.

`python packaging/shared_data.py` writes them, with a Python that has the extra `dev`. Wheels cannot make them
when they are built, as the options of some commands need the aggregator's dependencies.
"""

import shutil
from pathlib import Path

import completion
import manual_pages

FOLDER = Path(__file__).parent / "share"


def files() -> dict[Path, str]:
    """All files by path below `share`."""
    pages = {Path("man", f"man{name[-1]}", name): text for name, text in manual_pages.pages().items()}
    return {**pages, **completion.files()}


def main() -> None:
    """Writes them."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for path, text in files().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text)


if __name__ == "__main__":
    main()
