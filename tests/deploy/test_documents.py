"""What the documents tell people to type is typed here, in their order."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.container import PROJECT
from tests.support.ports import free_port
from tests.support.processes import run_command

DOCS = PROJECT / "docs"
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(name: str) -> list[str]:
    """The `sh` blocks of a document."""
    return re.findall(r"^```sh\n(.*?)^```$", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    install, demo, *rest = blocks("start.md")
    assert [line.split()[0] for line in install.splitlines()] == ["python3", "pip"]  # tried with the packages
    assert demo == "laggard demo --once\n"  # has a test of its own
    script = "".join(rest).replace("18830", str(free_port())).replace("9464", str(free_port()))
    script = script.replace("laggard status", 'laggard status --url "$URL"')
    script = script.replace("laggard top", 'laggard top --url "$URL"')
    (port,) = set(re.findall(r"127\.0\.0\.1:(\d+)", script))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "URL": f"http://127.0.0.1:{port}",
    }
    done = run_command(["bash", "-meuo", "pipefail", "-c", script], cwd=tmp_path, env=environment)
    assert "stragglers among" in done.stdout
    assert 'laggard_nodes{role="storage",state="up"} 1.0' in done.stdout
    for log in ("agent.log", "aggregator.log"):
        assert "Traceback" not in (tmp_path / "try" / log).read_text()


@pytest.mark.parametrize("name", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_between_documents_lead_somewhere(name: str) -> None:
    for target in LINK.findall((DOCS / name).read_text()):
        assert (DOCS / target).exists(), f"{name} links to {target}"
