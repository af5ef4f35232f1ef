"""The README.md of each collector names every field and setting; the agent's guide leads to it."""

import re
from pathlib import Path

import pytest

from laggard_agent import collectors
from laggard_agent.collectors import registry
from laggard_agent.collectors.gluster.process import INTERVAL, START_TIME
from laggard_agent.collectors.lwfs.trace import KINDS
from laggard_agent.collectors.mountstats.collector import fields_of
from laggard_common.wire.schema import Field

FOLDERS = Path(collectors.__path__[0])
GUIDE = FOLDERS.parents[2] / "docs" / "agent.md"
IN_GUIDE = {"diskstats", "host"}
"""Collectors whose README.md refers to the guide."""


def page(name: str) -> str:
    return GUIDE.read_text() if name in IN_GUIDE else (FOLDERS / name / "README.md").read_text()


def plain(fields: tuple[Field, ...]) -> list[str]:
    """Names that are not one of a numbered or named family."""
    return [field.name for field in fields if not re.search(r"^fop_|_\d+$|^(WRITE|GETATTR)_", field.name)]


@pytest.mark.parametrize("name", registry.names())
def test_every_field(name: str) -> None:
    fields = tuple(field for fields in registry.find(name).sources.values() for field in fields)
    assert [field for field in plain(fields) if f"`{field}`" not in page(name)] == []


def test_families_of_fields() -> None:
    assert all(f"`{kind}`" in page("lwfs") or f"`{kind}_0`" in page("lwfs") for kind in KINDS)
    assert all(f"`fop_<name>_{part}`" in page("gluster") for part in ("count", "latency_ns"))
    assert all(f"`{field.name}`" in page("gluster") for field in (START_TIME, INTERVAL))
    assert all(f"`{field.name}`" in page("mountstats") for field in fields_of("READ"))
    assert {
        f"`{kind}_ms_" in page("zfs") for kind in ("tx_assign", "disk_read", "disk_write", "total_read")
    } == {True}
    assert {f"`op_{kind}_within_us_" in page("ceph") for kind in "rw"} == {True}


@pytest.mark.parametrize("name", registry.names())
def test_settings_are_those_of_the_sample(name: str) -> None:
    sample = (FOLDERS / name / "sample.toml").read_text()
    settings = re.findall(r"^#(?!#)(.*)$", sample, re.MULTILINE)
    if name not in IN_GUIDE:
        assert settings
        assert [setting for setting in settings if setting not in page(name)] == []


def test_the_agents_guide_leads_to_them() -> None:
    guide = GUIDE.read_text()
    pages = [f"collectors/{name}/README.md" for name in registry.names() if name not in IN_GUIDE]
    assert [one for one in pages if one not in guide] == []
    assert "collectors/iotrace.md" in guide
