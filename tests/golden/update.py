"""Writes goldens with the present code: `python -m tests.golden.update [NAME...]`, all without a name.

A change of a golden is a change that somebody notices: the changelog names it.
"""

import sys

from tests.golden import goldens


def main(names: list[str]) -> None:
    """Writes the goldens whose file names begin with one of `names`."""
    for name, make in goldens.all_of_them().items():
        if names and not name.startswith(tuple(names)):
            continue
        path = goldens.FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.exists() else None
        now = make()
        path.write_text(now)
        print(f"{'same' if now == before else 'CHANGED'}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
