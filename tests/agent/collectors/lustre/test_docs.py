"""The page for operators names every source and file of the tables, and every field that is not Lustre's."""

import re
from pathlib import Path

from laggard_agent.collectors.lustre.collector import NODE_FIELDS
from laggard_agent.collectors.lustre.parse import STATES, UNITS
from laggard_agent.collectors.lustre.table_specs import JOB_TABLES, TABLES

PAGE = (Path(__file__).resolve().parents[4] / "agent/laggard_agent/collectors/lustre/README.md").read_text()


def test_every_source_has_its_row() -> None:
    for table in (*TABLES, *JOB_TABLES):
        (row,) = re.findall(rf"^\| `{table.source}` \| (?!\d|\s).*[a-z].*$", PAGE, re.MULTILINE)[:1]
        for kind in table.kinds:
            assert f"`{kind}/*/{table.files[0]}`" in row
        for file in table.files[1:]:
            assert f"`{file}`" in row
        assert f"| `{table.source}` |" in PAGE.partition("## Versions")[2]


def test_every_field_of_its_own() -> None:
    for field in NODE_FIELDS:
        assert f"`{field.name}`" in PAGE
    for code, state in enumerate(STATES, start=1):
        assert f"{code} {state.decode()}" in PAGE
    for unit in UNITS:
        assert f"`{unit.decode()}`" in PAGE
