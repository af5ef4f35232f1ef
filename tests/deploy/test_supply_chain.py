"""Packages are built twice with equal bytes, and say what is in them."""

import hashlib
import json
import os
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import advisories
import package_tree
import pytest
import sbom
from packaging.requirements import Requirement

from tests.support.container import PROJECT
from tests.support.processes import run_command

DPKG_DEB = shutil.which("dpkg-deb")
REQUIRED = {"aiomqtt": "2.5.0", "msgpack": "1.1.0", "psutil": "7.0.0", "zstandard": "0.25.0"}
CONTROL = "Package: laggard-agent\nVersion: 1\nArchitecture: all\nMaintainer: Laggard\nDescription: Test\n"


def wheel(folder: Path) -> Path:
    """The project's wheel, built into `folder`."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    run_command(command, cwd=PROJECT, env=environment)
    (built,) = folder.glob("laggard-*.whl")
    return built


def stub(folder: Path, name: str, version: str) -> None:
    """A wheel with a licence and nothing else, in the place of a dependency."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}/__init__.py", "")
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nLicense-Expression: MIT\n"
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the project's wheel and those that an agent needs."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder)
    for name, version in REQUIRED.items():
        stub(folder, name, version)
    return folder


def test_a_wheel_is_built_twice_with_equal_bytes(wheels: Path, tmp_path: Path) -> None:
    (first,) = wheels.glob("laggard-*.whl")
    again = wheel(tmp_path)
    assert again.name == first.name
    assert again.read_bytes() == first.read_bytes()


@pytest.mark.skipif(DPKG_DEB is None, reason="needs dpkg-deb")
def test_a_package_is_built_twice_with_equal_bytes(wheels: Path, tmp_path: Path) -> None:
    built = []
    for name, seconds in (("first", 10**9), ("again", 10**9 + 12345)):
        root = tmp_path / name
        package_tree.lay_out("agent", wheels, root, Path("/usr/bin/python3"))
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(CONTROL)
        for path in root.rglob("*"):
            os.utime(path, (seconds, seconds), follow_symlinks=False)
        package = tmp_path / f"{name}.deb"
        command = ["dpkg-deb", "--root-owner-group", "--build", "-Zxz", "-z0", str(root), str(package)]
        run_command(command, env={**os.environ, "SOURCE_DATE_EPOCH": str(10**9 - 1)})
        built.append(package.read_bytes())
    assert built[0] == built[1]


def test_the_bill_of_materials_names_every_distribution_with_the_digest_of_its_wheel(
    wheels: Path, tmp_path: Path
) -> None:
    package_tree.lay_out("agent", wheels, tmp_path, Path("/usr/bin/python3"))
    told = json.loads((tmp_path / "usr/share/doc/laggard-agent" / sbom.NAME).read_text())
    found = {each["name"]: each for each in told["components"]}
    assert {name: found[name]["version"] for name in REQUIRED} == REQUIRED
    assert set(found) == {*REQUIRED, "laggard"}
    for name, component in found.items():
        (path,) = wheels.glob(f"{name}-*.whl")
        assert component["hashes"][0]["content"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["msgpack"]["licenses"] == [{"expression": "MIT"}]
    assert found["laggard"]["licenses"] == [{"expression": "Apache-2.0"}]


def test_every_dependency_is_pinned_to_a_version_that_the_project_allows_and_to_hashes() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pinned = advisories.pinned()
    for each in map(Requirement, [*project["dependencies"], *extras["aggregator"], *extras["broker"]]):
        assert pinned[each.name.lower()]
        assert all(each.specifier.contains(version) for version in pinned[each.name.lower()])
    entries = advisories.PINNED.read_text().split("\n    --hash=sha256:")
    assert len(entries) > len(pinned)
    for block in advisories.PINNED.read_text().replace("\\\n", "").splitlines():
        assert block.startswith("#") or "--hash=sha256:" in block


def test_a_wheel_says_which_scripts_of_others_it_carries(wheels: Path) -> None:
    (path,) = wheels.glob("laggard-*.whl")
    with zipfile.ZipFile(path) as file:
        (name,) = (each for each in file.namelist() if ".dist-info/sboms/" in each)
        told = json.loads(file.read(name))
        carried = {
            each["name"]: each["hashes"][0]["content"]
            for library in told["components"]
            for each in library["components"]
        }
        vendored = [each for each in file.namelist() if "/vendor/" in each and each.endswith((".js", ".css"))]
        assert carried == {each: hashlib.sha256(file.read(each)).hexdigest() for each in vendored}


@pytest.mark.parametrize(
    ("about", "status", "said"),
    [
        ({"skip_reason": "no network"}, 2, "not looked up: "),
        ({"vulns": []}, 0, "no advisory about "),
        ({"vulns": [{"id": "GHSA-1"}]}, 1, "GHSA-1"),
        ({"vulns": [{"id": "GHSA-2"}]}, 0, ""),
    ],
)
def test_advisories_are_kept_with_their_day_and_none_is_passed_over(
    about: dict[str, object],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A database that could not be asked is not one that knows nothing."""
    kept, report = tmp_path / "advisories.json", tmp_path / "audit.json"
    kept.write_text(json.dumps({"accepted": {"GHSA-2": "of a function that is not used"}}))
    before = kept.read_text()
    found = [
        {"name": name, "version": version, **about}
        for name, versions in advisories.pinned().items()
        for version in versions
    ]
    report.write_text(json.dumps({"dependencies": found}))
    monkeypatch.setattr(advisories, "KEPT", kept)
    monkeypatch.setattr(sys, "argv", ["advisories.py", str(report)])
    assert advisories.main() == status
    assert said in "".join(capsys.readouterr())
    assert (kept.read_text() == before) == (status == 2)
