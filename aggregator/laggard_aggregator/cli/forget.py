"""`laggard forget`: nodes and components that are gone for good, and will not send again."""

import argparse

from laggard_aggregator.cli import control

_EXAMPLES = """\
examples:
  laggard forget oss-07
  laggard forget 'cn0[0-3]*' --comment "old racks are gone"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `laggard forget`."""
    parser.epilog = _EXAMPLES
    control.add_arguments(parser, many=False)


def run(args: argparse.Namespace) -> int:
    """Forgets the target, as far as it is silent."""
    said = control.do(args, "forget")
    nodes = said["nodes"]
    of_nodes = f"; nodes: {', '.join(nodes)}" if nodes else ""
    print(f"forgotten: {control.components(said)}{of_nodes}")
    return 0
