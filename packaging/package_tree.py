"""Lays out the files of one package, agent or aggregator, as a deb and an RPM carry them.

`python packaging/package_tree.py agent --wheels DIR --root DIR [--interpreter FILE]`; `documents` in
place of the package copies the documents alone into the root. Below the root:

/usr/lib/laggard-agent      a virtual environment whose interpreter is the distribution's, linked, not copied
/usr/bin/laggard-agent      a link to its program
/etc/laggard/agent.toml     the sample configuration
/usr/lib/systemd/system     the unit;  /usr/lib/sysusers.d  its user
/usr/share/laggard-agent    drop-ins for single collectors and for diskless nodes
/usr/share/laggard-aggregator  the folder deploy: rules, dashboards, samples
/usr/bin/laggard-ca         the certificate authority
/usr/share/doc/...          documents; examples is a link to /usr/share/laggard-aggregator
/usr/share/doc/.../sbom.cdx.json  the bill of materials
"""

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import sbom

PROJECT = Path(__file__).parents[1]
LAUNCHER = """\
#!{environment}/bin/python3
import sys

from {module} import main

sys.exit(main())
"""
NOT_NEEDED = {
    "agent": ("laggard_aggregator", "zstandard/_cffi*.so", "zstandard/backend_cffi.py"),
    "aggregator": ("pyarrow/include", "pyarrow/src", "pyarrow/includes", "numpy/_core/include", "**/*.pxd"),
}
"""What the wheels bring and no program here loads: the other daemon, second halves of libraries, headers."""
DOCUMENTS = {
    "agent": ("docs/agent.md", "docs/collectors/*.md", "agent/laggard_agent/collectors/*/README.md"),
    "aggregator": (
        *("README.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md", "bench/accuracy/README.md"),
        *("docs/**/*.*", "systemd/**/*.*", "aggregator/laggard_aggregator/demo/README.md"),
        *("agent/laggard_agent/collectors/*/README.md", "agent/laggard_agent/collectors/*/*.toml"),
    ),
}
"""Documents of each package, in the folders of the source tree, so that their links work."""
KEPT_ON = ("archive", "state")
"""Sections of aggregator.toml that a package turns on: its service has folders to keep things in."""


@dataclass(frozen=True, slots=True)
class Package:
    """What one package holds. `programs`: module by name of the program."""

    name: str
    requirement: str
    programs: dict[str, str]


PACKAGES = {
    "agent": Package("laggard-agent", "laggard", {"laggard-agent": "laggard_agent.__main__"}),
    "aggregator": Package(
        "laggard-aggregator",
        "laggard[aggregator,broker]",
        {
            "laggard-aggregator": "laggard_aggregator.cli.daemon",
            "laggard": "laggard_aggregator.cli.main",
        },
    ),
}


def lay_out(which: str, wheels: Path, root: Path, interpreter: Path) -> None:
    """Puts the files of `which` below `root`, modes as they are to be."""
    package = PACKAGES[which]
    environment = root / "usr/lib" / package.name
    _environment(package, which, wheels, environment, interpreter)
    for name, module in package.programs.items():
        launcher = LAUNCHER.format(environment=f"/usr/lib/{package.name}", module=module)
        _write(environment / "bin" / name, launcher, 0o755)
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (root / "usr/bin" / name).symlink_to(f"../lib/{package.name}/bin/{name}")
    sample = (PROJECT / "deploy" / f"{which}.toml").read_text()
    _write(root / "etc/laggard" / f"{which}.toml", turned_on(sample, KEPT_ON))
    unit = (PROJECT / "systemd" / f"{package.name}.service").read_text()
    _write(root / "usr/lib/systemd/system" / f"{package.name}.service", installed_unit(unit))
    users = (PROJECT / "systemd/sysusers.d/laggard.conf").read_text()
    _write(root / "usr/lib/sysusers.d" / f"{package.name}.conf", users)
    share(which, root / "usr")
    site = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    _write(root / "usr/share/doc" / package.name / sbom.NAME, sbom.bill(package.name, site, wheels))


def share(which: str, usr: Path) -> None:
    """Copies documents and samples of `which` into `share` below `usr`, and the authority into `bin`."""
    name = PACKAGES[which].name
    documents(which, usr / "share/doc" / name)
    samples = usr / "share" / name
    if which == "agent":
        for folder in ("laggard-agent.service.d", "tmpfiles.d"):
            for file in sorted((PROJECT / "systemd" / folder).iterdir()):
                _copy(file, samples / folder / file.name)
        _copy(PROJECT / "deploy/agent-diskless.toml", samples / "agent-diskless.toml")
        return
    deploy = PROJECT / "deploy"
    for file in sorted(deploy.rglob("*")):
        if file.is_file() and file.suffix not in {".py", ".pyc"}:
            _copy(file, samples / file.relative_to(deploy))
    authority = samples / "pki/laggard-ca"
    (usr / "bin").mkdir(parents=True, exist_ok=True)
    authority.rename(usr / "bin/laggard-ca")
    authority.symlink_to("../../../bin/laggard-ca")
    for link in ("deploy", "examples"):
        (usr / "share/doc" / name / link).symlink_to(f"../../{name}")


def documents(which: str, folder: Path) -> None:
    """Copies the documents of `which` into `folder`."""
    for pattern in DOCUMENTS[which]:
        for file in sorted(PROJECT.glob(pattern)):
            if file.is_file():
                _copy(file, folder / file.relative_to(PROJECT))


def turned_on(sample: str, sections: tuple[str, ...]) -> str:
    """A sample configuration with some of the sections that it only shows (`## [state]`) in force."""
    for name in sections:
        shown = re.compile(rf"^## \[{name}\]\n(?:## [a-z_]+ = .*\n)*", re.MULTILINE)
        sample = shown.sub(lambda found: found[0].replace("## [", "[").replace("## ", "#"), sample)
    return sample


def installed_unit(unit: str) -> str:
    """A unit for programs in /usr/bin."""
    return unit.replace("/opt/laggard/bin/", "/usr/bin/")


def _environment(package: Package, which: str, wheels: Path, folder: Path, interpreter: Path) -> None:
    """A virtual environment as venv makes it, but for a machine on which `interpreter` is."""
    minor = f"3.{sys.version_info.minor}"
    site = folder / "lib" / f"python{minor}" / "site-packages"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--quiet", "--isolated", "--disable-pip-version-check", "install"),
            *("--no-index", "--find-links", str(wheels), "--no-compile", "--no-cache-dir"),
            *("--root-user-action", "ignore", "--target", str(site), package.requirement),
        ],
        check=True,
    )
    for name in ("bin", "share"):
        shutil.rmtree(site / name, ignore_errors=True)
    for pattern in (*NOT_NEEDED[which], "**/tests"):
        for found in sorted(site.glob(pattern)):
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    for path in site.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (folder / "bin").mkdir()
    (folder / "bin/python3").symlink_to(interpreter)
    _write(
        folder / "pyvenv.cfg",
        f"home = {interpreter.parent}\ninclude-system-site-packages = false\nversion = {minor}\n",
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def main() -> int:
    """Lays out the package that the command line names."""
    parser = argparse.ArgumentParser(description="Lays out the files of one package.")
    parser.add_argument("which", choices=(*PACKAGES, "documents"))
    parser.add_argument("--wheels", type=Path, help="a folder that wheels.py has filled")
    parser.add_argument("--root", type=Path, required=True, help="below which the files are put")
    parser.add_argument(
        "--interpreter", type=Path, default=Path(f"/usr/bin/python3.{sys.version_info.minor}")
    )
    options = parser.parse_args()
    if options.which == "documents":
        documents("aggregator", options.root)
        return 0
    if options.wheels is None:
        parser.error("a package needs --wheels")
    try:
        lay_out(options.which, options.wheels, options.root, options.interpreter)
    except subprocess.CalledProcessError as exc:
        return int(exc.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
