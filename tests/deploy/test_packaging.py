"""What packages are made of; `make try-packages` builds them, and uses them on a machine."""

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import completion
import manual_pages
import package_tree
import pytest
import shared_data

from laggard_agent.cli import build_parser as agent_parser
from laggard_agent.settings import AgentSettings
from laggard_aggregator.cli.daemon import build_parser as aggregator_parser
from laggard_aggregator.cli.main import COMMANDS
from laggard_aggregator.settings.aggregator import AggregatorSettings, ArchiveTable, StateTable
from laggard_common.config import load
from tests.support.container import PROJECT
from tests.support.processes import run_command

PACKAGING = PROJECT / "packaging"
NFT = shutil.which("nft", path="/usr/sbin:/usr/bin:/sbin")
SCRIPTS = (
    *sorted(PACKAGING.glob("deb/debian/*.p*")),
    *(
        PACKAGING / name
        for name in ("deb/build", "rpm/build", "rpm/check", "tarball/build", "tarball/install.sh")
    ),
)


def test_a_packaged_aggregator_keeps_its_archive_and_state_and_all_else_is_default(tmp_path: Path) -> None:
    sample = (PROJECT / "deploy/aggregator.toml").read_text()
    path = tmp_path / "aggregator.toml"
    path.write_text(package_tree.turned_on(sample, package_tree.KEPT_ON))
    assert load(AggregatorSettings, path) == AggregatorSettings(archive=ArchiveTable(), state=StateTable())


def test_diskless_nodes_spool_where_their_drop_in_lets_them() -> None:
    settings = load(AgentSettings, PROJECT / "deploy/agent-diskless.toml")
    drop_in = (PROJECT / "systemd/laggard-agent.service.d/diskless.conf").read_text()
    (folder,) = re.findall(r"^RuntimeDirectory=(.*)$", drop_in, re.MULTILINE)
    assert settings.spool.directory == Path("/run") / folder
    (most,) = re.findall(
        r"^MemoryMax=(\d+)M$", (PROJECT / "systemd/laggard-agent.service").read_text(), re.MULTILINE
    )
    assert settings.spool.max_bytes <= int(most) * 1024 * 1024 / 4


@pytest.mark.skipif(os.getuid() != 0 or NFT is None, reason="nft asks the kernel, as root")
def test_the_limits_for_the_broker_s_host_are_what_nft_takes() -> None:
    rules = PROJECT / "deploy/nftables/laggard-broker.nft"
    command = [str(NFT), "-c", "-f", str(rules)]
    said = run_command(command, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    ports = re.findall(r"^listener (\d+)$", (PROJECT / "deploy/mosquitto/mosquitto.conf").read_text(), re.M)
    assert set(ports) <= set(
        re.findall(r"\d+", re.findall(r"^define PORTS = (.*)$", rules.read_text(), re.M)[0])
    )


@pytest.mark.parametrize("package", package_tree.PACKAGES.values(), ids=lambda package: str(package.name))
def test_units_start_programs_that_the_packages_bring(package: package_tree.Package) -> None:
    unit = package_tree.installed_unit((PROJECT / "systemd" / f"{package.name}.service").read_text())
    started = re.findall(r"^Exec\w+=(/[^ ]*laggard[^ ]*)", unit, re.MULTILINE)
    assert set(started) == {f"/usr/bin/{package.name}"}
    assert package.name in package.programs


CARRIED = {
    "agent": (
        "share/laggard-agent/agent-diskless.toml",
        "share/laggard-agent/laggard-agent.service.d/lustre.conf",
        "share/doc/laggard-agent/docs/agent.md",
        "share/doc/laggard-agent/docs/collectors/README.md",
    ),
    "aggregator": (
        "bin/laggard-ca",
        "share/laggard-aggregator/prometheus/laggard.rules.yml",
        "share/laggard-aggregator/prometheus/prometheus.yml",
        "share/laggard-aggregator/grafana/dashboards/laggard-overview.json",
        "share/laggard-aggregator/grafana/provisioning/dashboards/laggard.yml",
        "share/laggard-aggregator/alertmanager/alertmanager.yml",
        "share/laggard-aggregator/mosquitto/mosquitto.conf",
        "share/laggard-aggregator/mosquitto/acl",
        "share/laggard-aggregator/nats/nats-server.conf",
        "share/laggard-aggregator/nftables/laggard-broker.nft",
        "share/doc/laggard-aggregator/README.md",
        "share/doc/laggard-aggregator/docs/guide.md",
        "share/doc/laggard-aggregator/docs/runbook.md",
        "share/doc/laggard-aggregator/examples/alertmanager/alertmanager.yml",
    ),
}


@pytest.mark.parametrize("which", CARRIED)
def test_packages_carry_samples_and_documents(which: str, tmp_path: Path) -> None:
    package_tree.share(which, tmp_path)
    assert [path for path in CARRIED[which] if not (tmp_path / path).is_file()] == []
    assert [path for path in tmp_path.rglob("*") if path.suffix in {".py", ".pyc"}] == []


def test_links_between_packaged_documents_lead_to_packaged_files(tmp_path: Path) -> None:
    package_tree.share("aggregator", tmp_path)
    folder = tmp_path / "share/doc/laggard-aggregator"
    links = [
        (page, target)
        for page in sorted(folder.rglob("*.md"))
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    ]
    assert len(links) > 200
    assert [(str(page), target) for page, target in links if not (page.parent / target).exists()] == []


def test_documents_name_only_packaged_paths_that_there_are(tmp_path: Path) -> None:
    for which in package_tree.PACKAGES:
        package_tree.share(which, tmp_path)
    pages = [PROJECT / "README.md", *PROJECT.glob("docs/**/*.md"), PROJECT / "systemd/README.md"]
    named = {
        path.rstrip(".")
        for page in pages
        for path in re.findall(
            r"/usr(/share/(?:doc/)?laggard-(?:agent|aggregator)[\w./-]*)", page.read_text()
        )
    }
    assert len(named) > 10
    by_rpm = {"/share/laggard-agent/laggard.fc"}
    assert sorted(path for path in named - by_rpm if not Path(f"{tmp_path}{path}").exists()) == []


def test_the_packaged_authority_makes_certificates(tmp_path: Path) -> None:
    package_tree.share("aggregator", tmp_path)
    sample = tmp_path / "share/laggard-aggregator/pki/laggard-ca"
    run_command([sample, "init", tmp_path / "ca", "site"])
    run_command([tmp_path / "bin/laggard-ca", "node", tmp_path / "ca", "oss-1"])
    assert (tmp_path / "ca/issued/oss-1.pem").is_file()
    wrong = run_command([sample, "frob"], check=False)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "laggard-ca: no command 'frob' (see laggard-ca --help)\n",
    )


@pytest.mark.parametrize("name", ["laggard-agent", "laggard-aggregator"])
def test_a_purge_removes_the_folders_that_the_unit_makes(name: str) -> None:
    unit = (PROJECT / "systemd" / f"{name}.service").read_text()
    (folders,) = re.findall(r"^StateDirectory=(.*)$", unit, re.MULTILINE)
    removed = re.findall(
        r"^ +rm -rf (.*)$", (PACKAGING / f"deb/debian/{name}.postrm").read_text(), re.MULTILINE
    )
    assert {f"/var/lib/{folder}" for folder in folders.split()} <= set(" ".join(removed).split())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(PACKAGING)))
def test_scripts_are_sound(script: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    done = run_command(["shellcheck", script], check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "expected agent or aggregator"),
        (["agents"], "expected agent or aggregator, and perhaps --prefix DIR, got agents"),
        (["agent", "--prefix"], "--prefix needs a folder"),
    ],
)
def test_the_installer_without_a_network_says_what_is_wrong(options: list[str], message: str) -> None:
    installer = PACKAGING / "tarball/install.sh"
    done = run_command(["sh", installer, *options], check=False)
    assert (done.returncode, done.stderr) == (2, f"install.sh: {message}\n")


def test_every_option_and_subcommand_has_its_place_in_the_manual_pages() -> None:
    pages = manual_pages.pages()
    for parser in (agent_parser(), aggregator_parser()):
        page = pages[f"{parser.prog}.8"]
        for option in (option for action in parser._actions for option in action.option_strings):
            assert manual_pages.escaped(option) in page
    for command in COMMANDS:
        assert f".SS laggard {command.name}\n" in pages["laggard.1"]
    for name in ("agent", "aggregator"):
        for line in (PROJECT / "deploy" / f"{name}.toml").read_text().splitlines():
            assert manual_pages.escaped(line) in pages[f"laggard-{name}.toml.5"]


@pytest.fixture(scope="module")
def wheel_of_a_container(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as the Dockerfile builds it: from the files that it copies, and no others."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("src")
    dockerfile = (PROJECT / "deploy/container/Dockerfile").read_text()
    for *sources, target in (line.split()[1:] for line in re.findall(r"^COPY [^-].*", dockerfile, re.M)):
        for source in sources:
            into = folder / (source if target == "./" else target)
            into.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (PROJECT / source).is_dir() else shutil.copyfile
            copy(PROJECT / source, into)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "dist"]
    run_command(build, cwd=folder)
    (made,) = (folder / "dist").glob("*.whl")
    return zipfile.ZipFile(made)


def test_a_wheel_has_the_manual_pages_and_completions_of_its_programs(
    wheel_of_a_container: zipfile.ZipFile,
) -> None:
    names = wheel_of_a_container.namelist()
    carried = {name.partition(".data/data/share/")[2] for name in names if ".data/" in name}
    made = {path.as_posix() for path in shared_data.files()}
    assert made - carried == {"man/man8/laggard-ca.8"}  # a script of deploy/pki, which a wheel has not
    assert carried <= made


def test_what_the_dockerfile_copies_is_let_through() -> None:
    dockerfile = PROJECT / "deploy/container/Dockerfile"
    ignored = dockerfile.with_name("Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY ([^-].*) \S+$", dockerfile.read_text(), re.MULTILINE)
    assert {f"!{source}" for line in copied for source in line.split()} == {
        line for line in ignored if line.startswith("!")
    }


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_manual_pages_are_good_troff_and_say_what_was_said(tmp_path: Path) -> None:
    for name, text in manual_pages.pages().items():
        (tmp_path / name).write_text(text)
    for path in sorted(tmp_path.iterdir()):
        command = ["groff", "-ww", "-K", "utf8", "-T", "utf8", "-man", "-P-cbou", str(path)]
        shown = run_command(command, check=False)
        assert (shown.returncode, shown.stderr) == (0, "")
    sample = (PROJECT / "deploy/agent.toml").read_text().splitlines()
    command = [
        "groff",
        "-K",
        "utf8",
        "-T",
        "utf8",
        "-man",
        "-P-cbou",
        "-rLL=200n",
        str(tmp_path / "laggard-agent.toml.5"),
    ]
    shown = run_command(command)
    for line in filter(None, sample):
        assert line in shown.stdout


@pytest.mark.parametrize(
    ("program", "typed", "offered"),
    [
        ("laggard", ["si"], {"silence"}),
        ("laggard", ["drain", "--f"], {"--for"}),
        ("laggard", ["mine", "in"], {"init"}),
        ("laggard", ["mine", "jobs", "--fac"], {"--factors"}),
        ("laggard-agent", ["--on"], {"--once"}),
        ("laggard-aggregator", ["--check"], {"--check-config"}),
    ],
)
def test_bash_completes_commands_and_options(program: str, typed: list[str], offered: set[str]) -> None:
    made = {path.as_posix(): text for path, text in completion.files().items()}
    script = made[f"bash-completion/completions/{program}"]
    before = [program, *typed][-2]
    asked = f"""
COMP_WORDS=({program} {" ".join(typed)}); COMP_CWORD={len(typed)}
function=$(complete -p {program} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" {program} {typed[-1]} {before}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = run_command(["bash", "-c", script + asked], check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == offered
    assert len(made) == 6
