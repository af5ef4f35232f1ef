"""The command `laggard-agent`; imports that only a daemon needs are made when it runs."""

import argparse
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from laggard_agent.collectors import registry
from laggard_agent.collectors.interface import Roots
from laggard_agent.settings import AgentSettings
from laggard_agent.tools.iotrace import FORMAT_NAMES
from laggard_common import __version__
from laggard_common.clock import SystemClock
from laggard_common.config import load
from laggard_common.daemon import logs, memory
from laggard_common.daemon.command import guarded
from laggard_common.daemon.options import OneLineParser, WrappedHelp
from laggard_common.errors import ConfigError
from laggard_common.mqtt.settings import client_arguments
from laggard_common.visible import visible

Reread = Callable[[], AgentSettings]

_SETTLED_SECONDS = 10.0
_CHECK_SECONDS = 3.0
_COLLECT_AFTER = 10_000
MOST_KEPT_BYTES = 128 * 1024
"""Larger free blocks return to the system at once: an agent seldom needs them."""

_EXAMPLES = """\
examples:
  laggard-agent --config /etc/laggard/agent.toml
  laggard-agent --config /etc/laggard/agent.toml --check-config
  laggard-agent --config /etc/laggard/agent.toml --check
  laggard-agent --once --collectors diskstats,net
  laggard-agent --once --collectors diskstats --procfs /tmp/copied/proc
  laggard-agent --once --collectors lustre --lctl-dump params.txt
  laggard-agent --dump /tmp/oss-1 --config /etc/laggard/agent.toml
  laggard-agent --fold trace.log > folded.jsonl
"""


_PATHS = (
    (
        "--procfs",
        "DIR",
        "root of /proc; without --sysfs nothing of this host's /sys filters or names devices",
    ),
    ("--sysfs", "DIR", "root of /sys"),
    ("--debugfs", "DIR", "root of /sys/kernel/debug; without it kernel/debug below the root of /sys"),
    (
        "--lctl-dump",
        "FILE",
        "with --once: read the lustre collector from a saved output of `lctl get_param`",
    ),
    ("--dump", "DIR", "copy the raw files that the collectors read into DIR, new or empty, for a bug report"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0, 1 for a failure, 2 for bad input."""
    return guarded("laggard-agent", lambda: _run(build_parser().parse_args(argv)))


def build_parser() -> argparse.ArgumentParser:
    """The options of the command, also the source of its manual page."""
    parser = OneLineParser(
        prog="laggard-agent",
        description="Samples the counters of this node and publishes them over MQTT.",
        epilog=_EXAMPLES,
        formatter_class=WrappedHelp,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help="agent.toml; required unless --once or --dump")
    add(
        "--once",
        action="store_true",
        help="read every collector once, print one JSON object a line, and exit",
    )
    add(
        "--collectors",
        metavar="A,B",
        help=f"with --once or --dump: the collectors to read ({', '.join(registry.names())})",
    )
    for option, metavar, text in _PATHS:
        add(option, type=Path, metavar=metavar, help=text)
    add(
        "--fold",
        metavar="FILE",
        help="fold an I/O trace log, print one JSON object a line, and exit; - is standard input",
    )
    add(
        "--format",
        choices=("auto", *FORMAT_NAMES),
        default="auto",
        help="with --fold: the format of the log (default: detected from its first line)",
    )
    add("--check-config", action="store_true", help="check the files, report all problems, and exit")
    add(
        "--check",
        action="store_true",
        help="check the files, the broker and whether an aggregator answers, a line each, and exit",
    )
    add("--verbose", action="store_true", help="log every cycle")
    add("--version", action="version", version=f"laggard-agent {__version__}")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.dump is not None and options.once:
        raise ConfigError("", ["--dump and --once: expected one of them"])
    settings = _settings(options)
    roots = _roots(options)
    if options.check_config:
        try:
            _check_files(options.config, settings)
        except ConfigError as exc:
            exc.exit_code = 2  # also for a missing file, for which the daemon would wait
            raise
        print(f"{options.config or 'the defaults'}: good")
        return 0
    if options.check:
        from laggard_agent.tools.check import check

        return check(options.config, settings, roots, SystemClock(), sys.stdout)
    if options.fold is not None:
        return _fold(options.fold, options.format, settings.node)
    if options.dump is not None:
        return _dump(settings, roots, options.dump)
    if options.once:
        from laggard_agent.tools.once import read_once

        return _report(read_once(settings, roots, SystemClock(), sys.stdout))
    logs.configure(logging.DEBUG if options.verbose else logging.INFO)
    memory.settle(MOST_KEPT_BYTES)
    _check_files_at_start(options.config, settings)
    return _serve(settings, roots, partial(_reread, options))


def _dump(settings: AgentSettings, roots: Roots, folder: Path) -> int:
    from laggard_agent.tools.support_dump import dump

    summary, failed = dump(settings, roots, SystemClock(), folder)
    status = _report(failed)
    _say(f"{folder}: {summary}")
    return status


def _report(failed: Mapping[str, str]) -> int:
    """Prints the errors of collectors; returns the exit code."""
    for collector, error in failed.items():
        _say(f"laggard-agent: {collector}: {error}")
    return 1 if failed else 0


def _say(line: str) -> None:
    print(visible(line), file=sys.stderr)


def _fold(path: str, format_name: str, node: str) -> int:
    from laggard_agent.tools.iotrace.command import fold_file

    summary = fold_file(path, format_name, node, sys.stdout)
    sys.stdout.flush()
    _say(f"laggard-agent: {path}: {summary}")
    return 0


def _settings(options: argparse.Namespace) -> AgentSettings:
    if options.config is None:
        if not options.once and options.dump is None and options.fold is None:
            raise ConfigError("", ["--config FILE is required (or --once)"])
        settings = AgentSettings()
    else:
        settings = load(AgentSettings, options.config)
    if options.collectors is None:
        return settings
    if not options.once and options.dump is None:
        raise ConfigError("", ["--collectors needs --once or --dump"])
    chosen = tuple(dict.fromkeys(name.strip() for name in options.collectors.split(",")))
    unknown = [name for name in chosen if name not in registry.names()]
    if unknown:
        known = ", ".join(registry.names())
        raise ConfigError("", [f"--collectors: expected some of {known}, got {name!r}" for name in unknown])
    return replace(settings, collectors=chosen)


def _roots(options: argparse.Namespace) -> Roots:
    for name in ("procfs", "sysfs", "debugfs"):
        folder = getattr(options, name)
        if folder is not None and not folder.is_dir():
            raise ConfigError("", [f"--{name}: {folder}: not a directory"])
    if options.lctl_dump is not None:
        if not options.once:
            raise ConfigError("", ["--lctl-dump needs --once"])
        if not options.lctl_dump.is_file():
            raise ConfigError("", [f"--lctl-dump: {options.lctl_dump}: not a file"])
    default = Roots()
    foreign = options.procfs is not None
    sysfs = options.sysfs or (None if foreign else default.sysfs)
    return Roots(
        procfs=options.procfs or default.procfs,
        sysfs=sysfs,
        debugfs=options.debugfs or (sysfs / "kernel/debug" if sysfs else None),
        lctl_dump=options.lctl_dump,
    )


def _check_files(path: Path, settings: AgentSettings) -> None:
    """Checks the files that the settings name. Raises ConfigError."""
    try:
        client_arguments(settings.mqtt)
    except ConfigError as exc:
        raise ConfigError(str(path), exc.problems) from exc


def _check_files_at_start(path: Path, settings: AgentSettings) -> None:
    """Checks them, but waits for those that are missing or do not answer. Raises ConfigError for wrong ones.

    Certificates may be made, or their file system mounted, after the agent's start; batches wait meanwhile.
    """
    failed: list[ConfigError] = []

    def check() -> None:
        try:
            _check_files(path, settings)
        except ConfigError as exc:
            failed.append(exc)

    thread = threading.Thread(target=check, name="check files", daemon=True)
    thread.start()
    thread.join(_CHECK_SECONDS)
    if failed and not failed[0].may_pass:
        raise failed[0]
    for problem in failed[0].problems if failed else ():
        logging.getLogger(__name__).warning("%s: %s: waiting for it", path, problem)


def _reread(options: argparse.Namespace) -> AgentSettings:
    """Reads the configuration again. Raises ConfigError."""
    settings = _settings(options)
    _check_files(options.config, settings)
    return settings


def _serve(settings: AgentSettings, roots: Roots, reread: Reread) -> int:
    import asyncio

    from laggard_agent.transport.event_loop import CoarseEventLoop

    # Not asyncio.run: it waits for the pool's threads, and one may hang in a connect or a name look-up.
    loop = CoarseEventLoop()
    try:
        loop.run_until_complete(_until_signalled(settings, roots, reread))
    finally:
        left = asyncio.all_tasks(loop)  # aiomqtt's, when the broker did not answer
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        logging.shutdown()
        os._exit(0)
    return 0


async def _until_signalled(settings: AgentSettings, roots: Roots, reread: Reread) -> None:
    import asyncio

    from laggard_agent.app import App
    from laggard_common.daemon.sd_notify import Notifier
    from laggard_common.daemon.service import Service
    from laggard_common.mqtt.client import log_unhandled

    notifier = Notifier.of_environment()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_unhandled)
    loop.call_later(_SETTLED_SECONDS, freeze)
    await Service(reread, lambda now, _: App(now, roots, notifier=notifier), notifier).run(settings)


def freeze() -> None:
    """Exempts permanent objects (modules, schemas) from garbage collection.

    Objects of a tick have no cycles and are freed without it, so it runs seldom.
    """
    memory.set_apart()
    gc.set_threshold(_COLLECT_AFTER)


if __name__ == "__main__":
    sys.exit(main())
