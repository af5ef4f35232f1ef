"""Asking the aggregator on this host through its control socket, for the commands that change something."""

import argparse
import json
import math
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laggard_aggregator.alarms.overrides import checked_target
from laggard_aggregator.control.socket import MOST_BYTES, at
from laggard_common.errors import ConfigError, ServiceError

DEFAULT_STATE = Path("/var/lib/laggard/state")
TIMEOUT_SECONDS = 10.0
MOST_ANSWER_BYTES = 16 * MOST_BYTES
SHOWN = 10
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|min|h|d|w)", re.ASCII)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def add_arguments(parser: argparse.ArgumentParser, *, many: bool = True) -> None:
    """Declares the target and where the aggregator's state is."""
    what = "a node, a component (node/device) or a quoted pattern of them"
    parser.add_argument("target", nargs="?" if many else None, metavar="TARGET", help=what)
    parser.add_argument(
        "--state",
        type=Path,
        default=DEFAULT_STATE,
        metavar="DIR",
        help="the aggregator's state directory, in which its control socket is (default %(default)s)",
    )
    parser.add_argument("--comment", default="", metavar="TEXT", help="why, for colleagues and the audit log")


def add_decision_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what `silence` and `drain` have in common."""
    add_arguments(parser)
    parser.add_argument(
        "--for", dest="time", metavar="TIME", help="how long, such as 90min, 8h or 2d (default: until ended)"
    )
    parser.add_argument("--end", action="store_true", help="end what was decided about exactly this target")


def decide(args: argparse.Namespace, kind: str) -> int:
    """Does what `silence` or `drain` was asked for, and says what came of it."""
    if args.target is None:
        raise ConfigError("", ["TARGET: expected a node, a component or a pattern of them"])
    request: dict[str, Any] = {"do": kind, "target": _target(args.target), "comment": args.comment}
    if args.end:
        if args.time is not None:
            raise ConfigError("", ["--for: not together with --end"])
        request |= {"do": "end", "kind": kind}
    elif args.time is not None:
        request["seconds"] = duration(args.time)
    said = ask(args.state, request)
    print(f"{kind} of {args.target} {'ended' if args.end else 'noted'}: {components(said)}")
    return 0


def do(args: argparse.Namespace, what: str) -> Mapping[str, Any]:
    """Asks for `what` about the target; the answer."""
    return ask(args.state, {"do": what, "target": _target(args.target), "comment": args.comment})


def ask(state: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of the aggregator whose state is in `state`.

    Raises ServiceError in one line when nobody answers, or it says that it cannot be done.
    """
    try:
        address, handle = at(state)
    except OSError as exc:
        raise ServiceError(f"{state}: {exc.strerror}") from exc
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answer:
                said = json.loads(answer.readline(MOST_ANSWER_BYTES))
    except (FileNotFoundError, ConnectionRefusedError) as exc:
        raise ServiceError(f"{state}: no aggregator runs with this state") from exc
    except OSError as exc:
        raise ServiceError(f"{state}: no answer: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise ServiceError(f"{state}: not a laggard aggregator's answer") from exc
    finally:
        os.close(handle)
    if not isinstance(said, dict) or "error" in said:
        raise ServiceError(said["error"] if isinstance(said, dict) else f"{state}: not an answer")
    return said


def components(said: Mapping[str, Any]) -> str:
    """How many components an answer is about, and the first of them."""
    count, names = said["count"], said["components"]
    listed = ", ".join(names[:SHOWN]) + (", ..." if count > SHOWN else "")
    return f"{count} component{'' if count == 1 else 's'}" + (f" ({listed})" if names else "")


def duration(text: str) -> float:
    """Seconds of `90min`, `8h`, `2d`. Raises ConfigError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError("", [f"--for: expected a time such as 90min, 8h or 2d, got {text!r}"])
    return seconds


def _target(target: str) -> str:
    try:
        return checked_target(target)
    except ValueError as exc:
        raise ConfigError("", [f"TARGET: {exc}"]) from exc
