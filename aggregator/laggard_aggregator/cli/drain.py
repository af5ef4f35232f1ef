"""`laggard drain`: a component is being worked on, and neither judged nor anybody's peer meanwhile."""

import argparse

from laggard_aggregator.cli import control

_EXAMPLES = """\
examples:
  laggard drain oss-07 --comment "controller swap"
  laggard drain oss-07/sdk --for 6h
  laggard drain oss-07 --end
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard drain`."""
    parser.epilog = _EXAMPLES
    control.add_decision_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Drains the target, or ends that."""
    return control.decide(args, "drain")
