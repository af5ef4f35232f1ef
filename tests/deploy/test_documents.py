"""What the documents tell people to type is typed here, in their order."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.container import PROJECT
from tests.support.ports import free_port
from tests.support.processes import run_command, running
from tests.support.wait import LIMIT_SECONDS, wait_until

DOCS = PROJECT / "docs"
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(name: str) -> list[str]:
    """The `sh` blocks of a document."""
    return re.findall(r"^```sh\n(.*?)^```$", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    install, demo, *rest = blocks("start.md")
    assert [line.split()[0] for line in install.splitlines()] == [
        "python3",
        "pip",
        "mkdir",
    ]  # tried with the packages
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


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        again = next(at for at in range(100) if (f"{slug}-{at}" if at else slug) not in found)
        found.add(f"{slug}-{again}" if again else slug)
    return found


@pytest.mark.parametrize(
    "path", [PROJECT / "README.md", PROJECT / "bench/README.md", *sorted(DOCS.rglob("*.md"))]
)
def test_links_lead_to_headings_that_there_are(path: Path) -> None:
    for file, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text()):
        target = path.parent / file if file else path
        if target.suffix == ".md":
            assert anchor in anchors(target), f"{path.name} links to {file}#{anchor}"


READ_TWICE = (
    "everyone who reaches the broker is every node",
    "little more rights than none",
    "Again is an upgrade",
    "Then let those know",
    "whom to name in it",
    "What an input is, is told",
    "Start the agents that lack",
    "Nothing at once below twice",
    "Give the right, or take",
    "Only who is named there is let in",
    "Rates read ",
    "being a ratio, reads",
    "is called so",
    "silence of exactly this",
    "the interpreter does its work",
    "started over, and were cut out",
    "Mails by what became of them",
    "name of the day",
    "lasting name",
    "indicted",
    "alarms stand",
    "only when all went well",
)
"""Sentences at which readers stopped."""
SUFFIXES = {"", ".md", ".toml", ".sh", ".conf", ".yml", ".service", ".py", ".html", ".txt"}


def test_no_sentence_is_left_at_which_readers_stopped() -> None:
    folders = ("docs", "deploy", "systemd", "packaging", "agent", "aggregator", "common", "tests/golden/data")
    files = [PROJECT / "README.md", *(path for folder in folders for path in (PROJECT / folder).rglob("*"))]
    texts = {
        path: " ".join(path.read_text().split())
        for path in files
        if path.is_file() and path.suffix in SUFFIXES
    }
    assert len(texts) > 80
    assert [(path.name, each) for path, text in texts.items() for each in READ_TWICE if each in text] == []


FIO = re.findall(r"`(fio [^`]+)`", (DOCS / "runbook.md").read_text())


@pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio")
@pytest.mark.parametrize("command", [command for command in FIO if "--name" in command])
def test_the_runbook_measures_with_fio(command: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1 << 20))
    command = command.replace("/dev/sdk", str(disk)).replace("/mnt/volume", str(tmp_path))
    command = command.replace("--direct=1", "--direct=0").replace("--runtime=30", "--runtime=1")
    done = run_command([*command.replace("=1G", "=1M").split(), "--output-format=terse"], cwd=tmp_path)
    assert done.stdout.split(";")[4] == "0"  # errors
    assert disk.read_bytes() == bytes(1 << 20)
    undone = sorted(path.name for path in tmp_path.iterdir() if path != disk)
    assert undone == [path.name for path in tmp_path.glob("confirm.*")]


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_the_runbook_measures_with_iperf3(tmp_path: Path) -> None:
    page = (DOCS / "runbook.md").read_text()
    server, client = (
        re.findall(rf"`(iperf3 --{side}[^`]*)`", page)[0].split() for side in ("server", "client")
    )
    port = ["--port", str(free_port())]
    client = [{"oss-1": "127.0.0.1", "10": "1"}.get(word, word) for word in client]
    with running([*server, *port], tmp_path / "server.log") as process:
        measured = wait_until(lambda: run_command([*client, *port], check=False).stdout, "a measurement")
        assert "receiver" in measured
        assert process.wait(LIMIT_SECONDS) == 0


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
@pytest.mark.parametrize("name", ["maintenance.md", "slurm.md"])
def test_commands_of_the_documents_are_sound(name: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(name)):
        script = tmp_path / f"{number}.sh"
        script.write_text(block if block.startswith("#!") else f"#!/bin/sh\n{block}")
        run_command(["shellcheck", script])


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool (prometheus-alertmanager)")
def test_alertmanager_takes_the_receiver_for_pagerduty(tmp_path: Path) -> None:
    (receiver,) = re.findall(
        r"^```yaml\nreceivers:\n(.*?)^```$", (DOCS / "webhook.md").read_text(), re.M | re.S
    )
    sample = (PROJECT / "deploy/alertmanager/alertmanager.yml").read_text()
    pager = re.compile(r"  - name: storage-pager\n.*\n")
    assert len(pager.findall(sample)) == 1
    path = tmp_path / "alertmanager.yml"
    path.write_text(pager.sub(lambda _: receiver, sample))
    run_command(["amtool", "check-config", path])
