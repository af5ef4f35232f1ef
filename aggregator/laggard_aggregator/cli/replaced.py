"""`laggard replaced`: new hardware under an old name, against which nothing of the past shall count."""

import argparse

from laggard_aggregator.cli import control

_EXAMPLES = """\
examples:
  laggard replaced oss-07/sdk --comment "new disk, ticket 4711"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard replaced`."""
    parser.epilog = _EXAMPLES
    control.add_arguments(parser, many=False)


def run(args: argparse.Namespace) -> int:
    """Drops what is known of the target with the next window."""
    said = control.do(args, "replaced")
    print(f"starts over with the next window: {control.components(said)}")
    return 0
