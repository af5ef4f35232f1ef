import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from laggard_common.config import (
    above,
    between,
    checked,
    distinct,
    each,
    load,
    non_empty,
    one_of,
    parse,
    regex,
    tcp_port,
    topic_level,
)
from laggard_common.errors import ConfigError
from laggard_common.mqtt.settings import MqttSettings


@dataclass(frozen=True, slots=True)
class Group:
    name: str = field(metadata=checked(non_empty()))
    components: str = field(default=".*", metadata=checked(regex))


@dataclass(frozen=True, slots=True)
class Window:
    samples: int = field(default=60, metadata=checked(between(1)))
    shift: int = 30

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.shift > self.samples:
            yield "shift", f"expected at most samples ({self.samples}), got {self.shift}"


@dataclass(frozen=True, slots=True)
class Everything:
    site: str = field(metadata=checked(topic_level()))
    role: str = field(default="storage", metadata=checked(one_of(("compute", "storage"))))
    seconds: float = field(default=1.0, metadata=checked(above(0)))
    on: bool = False
    where: Path | None = None
    sources: tuple[str, ...] = field(default=("net",), metadata=checked(distinct(), each(topic_level())))
    port: int = field(default=1, metadata=checked(tcp_port()))
    window: Window = field(default_factory=Window)
    mqtt: MqttSettings = field(default_factory=MqttSettings)
    group: tuple[Group, ...] = ()


def problems(path: Path, text: str) -> list[str]:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(Everything, path)
    assert caught.value.exit_code == 2
    assert str(caught.value) == "\n".join(f"{path}: {problem}" for problem in caught.value.problems)
    return list(caught.value.problems)


def test_everything_that_is_right_arrives(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        """
        site = "a"
        seconds = 2
        on = true
        where = "/tmp/x"
        sources = ["diskstats", "net"]
        [mqtt]
        host = "fd00::1"
        port = 8883
        [window]
        samples = 20
        shift = 20
        [[group]]
        name = "luns"
        [[group]]
        name = "osts"
        components = "oss-.*"
        """
    )
    settings = load(Everything, path)
    assert settings == Everything(
        site="a",
        seconds=2.0,
        on=True,
        where=Path("/tmp/x"),
        sources=("diskstats", "net"),
        window=Window(20, 20),
        mqtt=MqttSettings(host="fd00::1", port=8883),
        group=(Group("luns"), Group("osts", "oss-.*")),
    )
    assert isinstance(settings.seconds, float)
    assert settings.mqtt.address == "[fd00::1]:8883"


def test_all_problems_of_a_file_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path / "x.toml",
        """
        role = "client"
        seconds = 0
        on = 1
        where = ""
        sources = ["net", "net"]
        prot = 3
        [mqtt]
        port = 70000
        host = ""
        pasword_file = "x"
        [window]
        samples = 10
        [[group]]
        name = ""
        [[group]]
        components = "*"
        [[group]]
        name = 3
        """,
    )
    assert set(found) == {
        "site: missing, expected a string",
        "role: expected one of compute, storage, got 'client'",
        "seconds: expected more than 0, got 0.0",
        "on: expected true or false, got 1",
        "where: expected a path, got ''",
        "sources: must not repeat, got ['net', 'net']",
        "prot: unknown key, did you mean port?",
        "mqtt.port: expected 1-65535, got 70000",
        "mqtt.host: must not be empty",
        "mqtt.pasword_file: unknown key, did you mean password_file?",
        "window.shift: expected at most samples (10), got 30",
        "group[0].name: must not be empty",
        "group[1].name: missing, expected a string",
        "group[1].components: not a regular expression: nothing to repeat at position 0: '*'",
        "group[2].name: expected a string, got 3",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('site = "a"\nseconds = nan', "seconds: expected a number, got nan"),
        ('site = "a"\nseconds = ' + "1" * 400, "seconds: expected a number, got " + "1" * 57 + "..."),
        ('site = "a"\nport = true', "port: expected an integer, got true"),
        ('site = "a"\nport = 1.0', "port: expected an integer, got 1.0"),
        ('site = "a"\nmqtt = 3', "mqtt: expected a table, got 3"),
        ('site = "a"\nmqtt = []', "mqtt: expected a table, got an array"),
        ('site = "a"\n[group]\nname = "a"', "group: expected an array, each a table, got a table"),
        ('site = "a"\nsources = "net"', "sources: expected an array, each a string, got 'net'"),
        ('site = "a"\nsources = [1]', "sources[0]: expected a string, got 1"),
        (
            'site = "a"\nsources = ["a/b"]',
            "sources: expected letters, digits and . _ : - (at most 128), got 'a/b'",
        ),
        ('site = "a"\nsite =', "not TOML: Invalid value (at end of document)"),
        ('site = "a"\nzzz = 1', "zzz: unknown key"),
    ],
)
def test_one_problem(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path / "x.toml", text) == [problem]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'site = "\xe9"')
    dangling = tmp_path / "dangling.toml"
    dangling.symlink_to(tmp_path / "nowhere")
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    for path, problem in (
        (tmp_path / "missing.toml", "no such file"),
        (tmp_path, "is a directory, expected a file"),
        (latin, "not UTF-8 at byte 8"),
        (dangling, "no such file"),
        (loop, "cannot be read: Too many levels of symbolic links"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(Everything, path)
        assert str(caught.value) == f"{path}: {problem}"


@pytest.mark.parametrize("text", ["port = " + "1" * 5000, "sources = " + "[" * 5000 + "]" * 5000])
def test_monstrous_toml(tmp_path: Path, text: str) -> None:
    (problem,) = problems(tmp_path / "x.toml", text)
    assert problem.startswith("not TOML: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("")
    path.chmod(0)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load(Everything, path)


def test_parse_takes_a_table_that_was_read_already() -> None:
    assert parse(Window, {"samples": 5, "shift": 1}) == Window(5, 1)
    with pytest.raises(ConfigError) as caught:
        parse(Window, {"samples": 0})
    assert str(caught.value) == "samples: expected at least 1, got 0"
