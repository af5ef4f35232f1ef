"""What an outage leaves in spools, and how it comes in afterwards.

    python -m bench.backlog [--outage 3600] [--compute 1000] [--servers 14] [--only space|one|fleet]

Three tables: how much time the default bound of a spool holds; an hour's backlog of one server with a real
agent; and a part of a fleet, each node with an hour, scaled to TaihuLight. Beside the last two six honest
servers are sampled once a second, one of them slow: its alarm has to stand, and windows have to be judged on
time.
"""

import argparse

from bench.backlog import fleet, one, space
from bench.machine import machine


def main() -> int:
    """Prints the tables; 1 when something was lost, came twice, late, or an honest verdict changed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--outage", type=int, default=3600, help="seconds that are waiting (default 3600)")
    parser.add_argument("--compute", type=int, default=1000, help="compute nodes of the fleet's part")
    parser.add_argument("--servers", type=int, default=14, help="servers of the fleet's part")
    parser.add_argument("--only", choices=("space", "one", "fleet"))
    options = parser.parse_args()
    print(machine("aiomqtt", "msgpack", "zstandard"))
    good = True
    if options.only in (None, "space"):
        print("\n" + "\n".join(space.table()), flush=True)
    if options.only in (None, "one"):
        lines, right = one.table(options.outage)
        good &= right
        print("\n" + "\n".join(lines), flush=True)
    if options.only in (None, "fleet"):
        lines, right = fleet.table(options.outage, options.compute, options.servers)
        good &= right
        print("\n" + "\n".join(lines), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
