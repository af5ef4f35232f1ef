"""Packages are built twice with equal bytes, and say what is in them."""

import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import package_tree
import pytest
import sbom

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
