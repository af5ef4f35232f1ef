"""Signals to a real process' loop, and what runs on it in their course."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from laggard_common.daemon.sd_notify import Notifier
from laggard_common.daemon.service import Service
from laggard_common.errors import ConfigError, ServiceError
from tests.support.service_manager import manager, told


@dataclass
class Job:
    """Runs until it is stopped; does to itself what `acts` has for its name."""

    name: str
    story: "Story"
    before: "Job | None" = None

    async def run(self, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
        self.story.seen.append(f"{self.name} begins")
        act = self.story.acts.pop(self.name, None)
        assert started is not None
        if act is not None and act.__name__ == "taken":
            act()
        started.set()
        if act is not None:
            act()
        await stop.wait()
        self.story.seen.append(f"{self.name} ends")


@dataclass
class Story:
    files: list[str]
    acts: dict[str, Callable[[], None]]  # by the name of the job or of the file that is loaded
    seen: list[str] = field(default_factory=list)
    made: list[Job] = field(default_factory=list)

    def load(self) -> str:
        name = self.files.pop(0)
        if name.startswith("bad"):
            if name in self.acts:
                asyncio.get_running_loop().call_soon(self.acts[name])
            raise ConfigError("laggard.toml", [f"{name}: expected something better", "and more"])
        return name

    def make(self, name: str, before: Job | None) -> Job:
        self.made.append(Job(name, self, before))
        return self.made[-1]

    def play(self, notifier: Notifier | None = None) -> None:
        asyncio.run(Service(self.load, self.make, notifier or Notifier()).run("first"))


def hangup() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def taken() -> None:
    raise ServiceError("the port is taken")


@pytest.fixture(autouse=True)
def _default_signals() -> None:
    """A test that goes wrong must not end the tests."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        assert signal.getsignal(number) is not None


def test_sigterm_ends_it_in_order() -> None:
    story = Story([], {"first": end})
    story.play()
    assert story.seen == ["first begins", "first ends"]


def test_the_first_signal_that_ends_it_is_told() -> None:
    told: list[str] = []

    def end_twice() -> None:
        end()
        end()

    story = Story(["second"], {"first": hangup, "second": end_twice})
    service = Service(story.load, story.make, Notifier(), lambda: told.append("ending"))
    asyncio.run(service.run("first"))
    assert told == ["ending"]


def test_sighup_puts_another_in_its_place() -> None:
    story = Story(["second", "third"], {"first": hangup, "second": hangup, "third": end})
    story.play()
    assert story.seen == [
        *("first begins", "first ends"),
        *("second begins", "second ends"),
        *("third begins", "third ends"),
    ]
    assert [job.before and job.before.name for job in story.made] == [None, "first", "second"]


def test_bad_files_are_refused_and_it_runs_on(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(["bad"], {"first": hangup, "bad": end})
    with caplog.at_level(logging.ERROR):
        story.play()
    assert story.seen == ["first begins", "first ends"]
    assert [record.getMessage() for record in caplog.records] == [
        "configuration rejected: laggard.toml: bad: expected something better",
        "configuration rejected: laggard.toml: and more",
    ]


def test_settings_that_do_not_work_give_way_to_the_ones_before(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(["second"], {"first": hangup, "second": taken})
    story.acts["first again"] = end
    plain = story.make

    def make(name: str, before: Job | None) -> Job:
        return plain("first again" if name == "first" and before else name, before)

    asyncio.run(Service(story.load, make, Notifier()).run("first"))
    assert story.seen == [
        *("first begins", "first ends", "second begins"),
        *("first again begins", "first again ends"),
    ]
    assert "going back to the previous one: the port is taken" in caplog.text


def test_settings_that_never_started_are_not_gone_back_to() -> None:
    story = Story(["second", "third"], {"first": hangup, "third": taken, "first again": end})

    @dataclass
    class Starting(Job):
        async def run(self, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
            self.story.seen.append("second begins")
            hangup()
            await stop.wait()

    def make(name: str, before: Job | None) -> Job:
        if name == "second":
            return Starting(name, story, before)
        return Job("first again" if name == "first" and before else name, story, before)

    asyncio.run(Service(story.load, make, Notifier()).run("first"))
    assert story.seen == [
        *("first begins", "first ends", "second begins", "third begins"),
        *("first again begins", "first again ends"),
    ]


def test_what_does_not_start_at_all_is_raised() -> None:
    with pytest.raises(ServiceError, match="the port is taken"):
        Story([], {"first": taken}).play()


def test_what_fails_later_is_raised_also_with_new_settings() -> None:
    def fails() -> None:
        raise ServiceError("the disk is gone")

    story = Story(["second"], {"first": hangup, "second": fails})
    with pytest.raises(ServiceError, match="the disk is gone"):
        story.play()
    assert story.seen == ["first begins", "first ends", "second begins"]


def test_the_service_manager_hears_of_it() -> None:
    address = f"@laggard-test-{os.getpid()}"
    with manager(address) as listening:
        story = Story(["bad", "second"], {"first": hangup, "bad": hangup, "second": end})
        story.play(Notifier(address))
        said = [lines[0] for lines in told(listening)]
    assert said == ["RELOADING=1", "READY=1", "RELOADING=1", "STOPPING=1"]
