"""`laggard silence`: a component is judged and shown as ever, but nobody is told of it."""

import argparse

from laggard_aggregator.cli import control

_EXAMPLES = """\
examples:
  laggard silence oss-07/sdk --for 2d --comment "disk ordered, ticket 4711"
  laggard silence 'oss-1[0-9]' --for 8h
  laggard silence oss-07/sdk --end
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard silence`."""
    parser.epilog = _EXAMPLES
    control.add_decision_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Silences the target, or ends that."""
    return control.decide(args, "silence")
