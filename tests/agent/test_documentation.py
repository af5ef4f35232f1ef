"""docs/agent.md names everything that the agent reads and every option of its command."""

from pathlib import Path

import pytest

from laggard_agent.cli import main
from laggard_agent.collectors.diskstats import collector
from laggard_agent.collectors.host import collector as host
from laggard_common.wire.schema import Field

DOC = (Path(__file__).resolve().parents[2] / "docs" / "agent.md").read_text()


@pytest.mark.parametrize("fields", [collector.FIELDS, host.FIELDS])
def test_every_counter_is_documented(fields: tuple[Field, ...]) -> None:
    assert [field.name for field in fields if f"`{field.name}`" not in DOC] == []


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    words = (
        capsys.readouterr()
        .out.replace("[", " ")
        .replace("]", " ")
        .replace(",", " ")
        .replace(":", " ")
        .split()
    )
    options = {word for word in words if word.startswith("--")} - {"--help", "--version"}
    assert {option for option in options if option not in DOC} == set()
