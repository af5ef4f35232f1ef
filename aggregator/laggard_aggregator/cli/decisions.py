"""`laggard silence`, `drain`, `comment`, `replaced`, `forget`: decisions, sent to the control socket."""

import argparse
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laggard_aggregator.alarms.overrides import checked_target, checked_ticket
from laggard_aggregator.cli.user_times import duration_seconds, seconds_until
from laggard_aggregator.control.socket import MOST_BYTES, at
from laggard_aggregator.files.json_line import line
from laggard_aggregator.status.formatting import counted, zoned
from laggard_common.errors import ConfigError, ServiceError
from laggard_common.visible import visible

DEFAULT_STATE = Path("/var/lib/laggard/state")
TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 * MOST_BYTES
MAX_LISTED = 10


@dataclass(frozen=True, slots=True)
class DecisionCommand:
    """A subcommand that decides about a target; its `examples` follow the options in `--help`.

    A decision that `stands` lasts until `--for` or `--until` is over, or `--end`. `done` is the text of the
    answer otherwise.
    `says`: the comment is an argument; `tickets`: it may have a ticket.
    """

    name: str
    examples: str
    stands: bool = False
    lasts: str = "until ended"
    done: str = ""
    says: bool = False
    tickets: bool = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares TARGET, `--state`, comment, `--ticket`, and the ends of decisions in force."""
        add = parser.add_argument
        parser.epilog = f"examples:\n{self.examples}"
        add(
            "target",
            nargs="?" if self.stands else None,
            metavar="TARGET",
            help="a node, a component (node/device) or a quoted pattern of them",
        )
        add(
            "--state",
            type=Path,
            default=DEFAULT_STATE,
            metavar="DIR",
            help="the aggregator's state directory, in which its control socket is (default %(default)s)",
        )
        if self.says:
            add("comment", nargs="?", default="", metavar="TEXT", help="what colleagues should know")
        else:
            add(
                "--comment", "--why", default="", metavar="TEXT", help="why, for colleagues and the audit log"
            )
        if self.tickets:
            add("--ticket", default="", metavar="URL", help="link of a ticket, http:// or https://")
        if self.stands:
            ends = parser.add_mutually_exclusive_group()
            ends.add_argument(
                "--for",
                dest="time",
                metavar="TIME",
                help=f"how long, such as 90min, 8h or 2d (default: {self.lasts})",
            )
            ends.add_argument("--until", metavar="TIME", help="end, such as 2026-01-31T10:00 (UTC)")
            ends.add_argument("--end", action="store_true", help="end it for exactly this target")

        add("--json", action="store_true", help="print the aggregator's answer as one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Sends the decision and prints the components that it concerns."""
        if args.target is None:
            raise ConfigError("", ["TARGET: expected a node, a component or a pattern of them"])
        try:
            request = {"do": self.name, "target": checked_target(args.target), "comment": args.comment}
        except ValueError as exc:
            raise ConfigError("", [f"TARGET: {exc}"]) from exc
        try:
            request |= {"ticket": checked_ticket(args.ticket)} if self.tickets and args.ticket else {}
        except ValueError as exc:
            raise ConfigError("", [f"--{exc}"]) from exc
        done = self.done
        if self.stands:
            done = (
                f"{self.name} {'on' if self.says else 'of'} {args.target} {'ended' if args.end else 'noted'}"
            )
            if args.end:
                request |= {"do": "end", "kind": self.name}
            elif args.time is not None:
                request["seconds"] = duration_seconds("--for", args.time)
            elif args.until is not None:
                request["seconds"] = seconds_until("--until", args.until)
        answer = ask(args.state, request)
        if args.json:
            print(line(dict(answer)))
            return 0
        count, names, nodes = answer["count"], answer["components"], answer.get("nodes", ())
        said = f"{done}: {counted(count, 'component')}"
        if not count and self.stands and not args.end:
            said = f"{done}; none of its components is compared yet"
        if names:
            said += f" ({', '.join(names[:MAX_LISTED])}{', ...' if count > MAX_LISTED else ''})"
        if "until" in answer:
            said += f"; until {zoned(answer['until'])}"
        print(visible(said + (f"; nodes: {', '.join(nodes)}" if nodes else "")))
        return 0


silence = DecisionCommand(
    "silence",
    """\
  laggard silence oss-07/sdk --for 2d --comment "disk ordered, ticket 4711"
  laggard silence 'oss-1[0-9]' --for 8h
  laggard silence oss-07/sdk --end
""",
    stands=True,
    lasts="2h",
)
drain = DecisionCommand(
    "drain",
    """\
  laggard drain oss-07 --comment "controller swap"
  laggard drain oss-07/sdk --for 6h
  laggard drain oss-07 --end
""",
    stands=True,
)
comment = DecisionCommand(
    "comment",
    """\
  laggard comment oss-07/sdk "disk ordered" --ticket https://tickets.example.org/4711
  laggard comment oss-07 "firmware update on Thursday" --for 7d
  laggard comment oss-07/sdk --end
""",
    stands=True,
    says=True,
)
replaced = DecisionCommand(
    "replaced",
    """\
  laggard replaced oss-07/sdk --comment "new disk, ticket 4711"
""",
    done="starts over with the next window",
)
forget = DecisionCommand(
    "forget",
    """\
  laggard forget oss-07
  laggard forget 'cn0[0-3]*' --comment "old racks are gone"
""",
    done="forgotten",
    tickets=False,
)


def ask(state: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sends `request` to the aggregator with state directory `state` and returns its answer.

    Raises ServiceError, with a message of one line, when no aggregator answers or it refuses.
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
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline(MAX_ANSWER_BYTES))
    except (FileNotFoundError, ConnectionRefusedError) as exc:
        raise ServiceError(f"{state}: no aggregator runs with this state") from exc
    except OSError as exc:
        raise ServiceError(f"{state}: no answer: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise ServiceError(f"{state}: not a laggard aggregator's answer") from exc
    finally:
        os.close(handle)
    if not isinstance(answer, dict) or "error" in answer:
        raise ServiceError(answer["error"] if isinstance(answer, dict) else f"{state}: not an answer")
    return answer
