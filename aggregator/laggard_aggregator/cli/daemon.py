"""The command `laggard-aggregator`; the aggregator is imported only to check or run it."""

import argparse
import getpass
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from laggard_aggregator.cli.extras import missing_extra_named
from laggard_aggregator.settings import channels
from laggard_common import __version__
from laggard_common.daemon import logs, memory
from laggard_common.daemon.command import FAILED, guarded
from laggard_common.daemon.options import OneLineParser, WrappedHelp
from laggard_common.errors import ConfigError

if TYPE_CHECKING:
    from laggard_aggregator.settings.aggregator import AggregatorSettings

_LEAST_PASSWORD_CHARS = 8
_MOST_PASSWORD_CHARS = 512
_ENDS_SECONDS = 20.0
"""From a signal to the end. A snapshot of 41,538 nodes takes 3 s; Kubernetes waits 30 s, systemd 90 s."""

_log = logging.getLogger(__name__)

_EXAMPLES = """\
examples:
  laggard-aggregator --config /etc/laggard/aggregator.toml
  laggard-aggregator --config /etc/laggard/aggregator.toml --check-config
  laggard-aggregator --config /etc/laggard/aggregator.toml --test-mail
  install -m 0600 /dev/null /etc/laggard/http-credentials
  laggard-aggregator --credential prometheus >> /etc/laggard/http-credentials
  laggard-aggregator --credential grafana --token >> /etc/laggard/http-credentials
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0, 1 for a failure, 2 for bad input."""
    _settle_memory()

    def run() -> int:
        with missing_extra_named():
            return _run(build_parser().parse_args(argv))

    return guarded("laggard-aggregator", run)


def build_parser() -> argparse.ArgumentParser:
    """The options of the command, also the source of its manual page."""
    parser = OneLineParser(
        prog="laggard-aggregator",
        description="Compares the components of a storage system with their peers and finds the stragglers.",
        epilog=_EXAMPLES,
        formatter_class=WrappedHelp,
        allow_abbrev=False,
    )
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="FILE", help="aggregator.toml")
    what.add_argument(
        "--credential",
        metavar="NAME",
        help="read a password, print a line for http.credentials_file, and exit",
    )
    add(
        "--token",
        action="store_true",
        help="with --credential: make a token instead, and say it on standard error",
    )
    add("--check-config", action="store_true", help="check the files, report all problems, and exit")
    tests = parser.add_mutually_exclusive_group()
    for name in channels.names():
        tests.add_argument(
            f"--test-{name}",
            action="store_const",
            const=name,
            dest="test_channel",
            help=f"send a notification marked as a test by [{name}], and exit",
        )
    add("--verbose", action="store_true", help="log every cycle")
    add("--version", action="version", version=f"laggard-aggregator {__version__}")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.credential is not None:
        return _print_credential(options.credential, token=options.token)
    if options.check_config and options.test_channel:
        raise ConfigError("", [f"--test-{options.test_channel}: not together with --check-config"])
    if options.token:
        raise ConfigError("", ["--token: only together with --credential"])
    try:
        settings = _load(options.config)
    except ConfigError as exc:
        if options.check_config:
            exc.exit_code = 2  # also for a missing file, for which a service manager tries again
        raise
    if options.check_config:
        for name, text in settings.identity.warnings():
            print(f"laggard-aggregator: {options.config}: warning: identity.{name}: {text}", file=sys.stderr)
        print(f"{options.config}: good")
        return 0
    if options.test_channel:
        return _test_channel(options.test_channel, settings, options.config)
    logs.configure(logging.DEBUG if options.verbose else logging.INFO)
    _serve(options.config, settings)
    return 0


def _serve(config: Path, settings: "AggregatorSettings") -> None:
    import asyncio

    import uvloop

    from laggard_aggregator.app import App
    from laggard_common.daemon.sd_notify import Notifier
    from laggard_common.daemon.service import Service

    memory.set_apart()
    notifier = Notifier.of_environment()
    giving_up = threading.Timer(_ENDS_SECONDS, _give_up)
    giving_up.daemon = True
    service = Service(
        lambda: _load(config),
        lambda wanted, before: App(wanted, notifier=notifier, before=before),
        notifier,
        giving_up.start,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service.run(settings))


def _give_up() -> None:
    """Ends the process beside threads that a disk holds up, which nothing else ends."""
    _log.error(
        "not ended %.0f s after the signal: does the disk of [state] or [archive] hang? Ending as by SIGKILL:"
        " what was acknowledged is on the disk, agents send the rest again",
        _ENDS_SECONDS,
    )
    logging.shutdown()
    os._exit(FAILED)


def _print_credential(name: str, *, token: bool) -> int:
    """Prints the line, and a token to standard error. Raises ConfigError for invalid input."""
    from laggard_aggregator.web.auth import new_token, password_line

    try:
        if token:
            secret, line = new_token(name)
            print(f"token of {name}, shown only once: {secret}", file=sys.stderr)
        else:
            line = password_line(name, _password())
    except ValueError as exc:
        raise ConfigError("", [f"--credential: {exc}"]) from exc
    print(line)
    return 0


def _password() -> str:
    if not sys.stdin.isatty():
        return _long_enough(sys.stdin.readline(_MOST_PASSWORD_CHARS + 2).rstrip("\r\n"))
    password = _long_enough(getpass.getpass("password: "))
    if getpass.getpass("once more: ") != password:
        raise ValueError("the two passwords differ")
    return password


def _long_enough(password: str) -> str:
    if not _LEAST_PASSWORD_CHARS <= len(password) <= _MOST_PASSWORD_CHARS:
        raise ValueError(f"a password has {_LEAST_PASSWORD_CHARS} to {_MOST_PASSWORD_CHARS} characters")
    return password


def _settle_memory() -> None:
    """Limits memory growth; called before pyarrow is imported, which starts threads.

    pyarrow's own allocator keeps pages for every thread. Only the environment makes all of it use the C
    library's allocator, and operators may override it there.
    """
    memory.settle()
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _test_channel(name: str, settings: "AggregatorSettings", path: Path) -> int:
    import asyncio

    from laggard_aggregator.notify.channel import make_channels
    from laggard_aggregator.notify.test_notification import send_test

    if name not in settings.channels:
        raise ConfigError(str(path), [f"{name}: missing, there is nobody to send a {name} to"])
    (channel,) = make_channels({name: settings.channels[name]})
    sending = send_test(channel, settings.site, settings.http.page, time.time(), settings.needs_token)
    print(asyncio.run(sending))
    return 0


def _load(path: Path) -> "AggregatorSettings":
    """Reads the configuration and checks that an aggregator can be built from it. Raises ConfigError."""
    from laggard_aggregator.settings.aggregator import AggregatorSettings
    from laggard_common.config import load

    settings = load(AggregatorSettings, path)
    try:
        from laggard_aggregator.app import App  # takes a second, and a typo is found without it

        App(settings)
    except ConfigError as exc:
        raise exc if exc.path else ConfigError(str(path), exc.problems) from exc
    return settings


if __name__ == "__main__":
    sys.exit(main())
