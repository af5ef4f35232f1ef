"""Manual pages and completions as files, which wheels carry, against the present options."""

import importlib.metadata

import pytest
import shared_data

from tests.golden.test_goldens import BREAKS_LINES_OTHERWISE


@pytest.mark.skipif(BREAKS_LINES_OTHERWISE, reason="argparse of this Python breaks lines otherwise")
def test_the_files_are_those_of_the_present_options() -> None:
    there = {
        path.relative_to(shared_data.FOLDER): path.read_text()
        for path in shared_data.FOLDER.rglob("*")
        if path.is_file()
    }
    made = shared_data.files()
    different = sorted(str(path) for path in there.keys() | made.keys() if there.get(path) != made.get(path))
    assert not different, f"run python packaging/shared_data.py (shtab {importlib.metadata.version('shtab')})"
