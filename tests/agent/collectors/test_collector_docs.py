"""The pages of collectors name every field, setting and source."""

import re
from pathlib import Path

import pytest

from laggard_agent.collectors.fnprofile.collector import SAMPLER_FIELDS
from laggard_agent.collectors.fnprofile.functions import FIELDS as FUNCTION_FIELDS
from laggard_agent.collectors.fntrace import collector as fntrace
from laggard_agent.collectors.gluster import collector as gluster
from laggard_agent.collectors.gluster.process import INTERVAL, START_TIME
from laggard_agent.collectors.gluster.table import ALWAYS
from laggard_agent.collectors.infiniband import collector
from laggard_agent.collectors.lwfs import collector as lwfs
from laggard_agent.collectors.lwfs import server_counters
from laggard_agent.collectors.lwfs.trace import KINDS
from laggard_agent.collectors.net.collector import DIAG_FIELDS
from laggard_agent.collectors.net.destinations import DESTINATION_FIELDS
from laggard_agent.collectors.net.interfaces import INTERFACE_FIELDS
from laggard_agent.collectors.net.softnet import SOFTNET_FIELDS
from laggard_agent.collectors.net.tcp import TCP_FIELDS
from laggard_common.wire.schema import Field

DOCS = Path(__file__).resolve().parents[3] / "docs"


def page(name: str) -> str:
    return (DOCS / "collectors" / f"{name}.md").read_text()


def plain(fields: tuple[Field, ...]) -> list[str]:
    """Names that are not one of a numbered or named family."""
    return [field.name for field in fields if not re.search(r"^fop_|_\d$", field.name)]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("gluster", (*gluster.NODE_FIELDS, *ALWAYS, START_TIME, INTERVAL)),
        ("lwfs", (*lwfs.LOG_FIELDS, *server_counters.FIELDS)),
        ("fnprofile", (*FUNCTION_FIELDS, *SAMPLER_FIELDS)),
        ("fntrace", (*fntrace.FIELDS, *fntrace.NODE_FIELDS)),
        ("infiniband", (*collector.PORT_FIELDS, *collector.NODE_FIELDS)),
        ("net", (*INTERFACE_FIELDS, *TCP_FIELDS, *SOFTNET_FIELDS, *DESTINATION_FIELDS, *DIAG_FIELDS)),
    ],
)
def test_every_field(name: str, fields: tuple[Field, ...]) -> None:
    assert [field for field in plain(fields) if f"`{field}`" not in page(name)] == []


def test_families_of_fields() -> None:
    assert all(f"`{kind}`" in page("lwfs") or f"`{kind}_0`" in page("lwfs") for kind in KINDS)
    assert all(f"`fop_<name>_{what}`" in page("gluster") for what in ("count", "latency_ns"))


@pytest.mark.parametrize("name", ["fnprofile", "fntrace", "gluster", "lwfs", "infiniband", "net"])
def test_settings_are_those_of_the_sample(name: str) -> None:
    sample = (
        (DOCS.parent / "deploy" / "agent.toml").read_text().partition(f"[{name}]\n")[2].partition("\n[")[0]
    )
    settings = re.findall(r"^#(?!#)(.*)$", sample, re.MULTILINE)
    assert settings
    assert [setting for setting in settings if setting not in page(name)] == []


def test_the_agents_page_leads_to_them() -> None:
    agent = (DOCS / "agent.md").read_text()
    assert [p.name for p in (DOCS / "collectors").glob("*.md") if f"collectors/{p.name}" not in agent] == []
