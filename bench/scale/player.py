"""The process that plays the agents; `bench.scale` starts it and reads the lines of JSON that it prints.

When all are connected it waits for a line, and then plays.

python -m bench.scale.player PORT NODES OWN_CONNECTIONS SECONDS
"""

import gc
import json
import sys
import time
from dataclasses import asdict

from bench.scale.fleet import Fleet
from bench.scale.shapes import taihulight

STEP_SECONDS = 0.02
TELL_SECONDS = 1.0
LAST_WORD_SECONDS = 120.0


def main() -> int:
    """Plays for so long, then waits until everything is acknowledged, for a bounded time."""
    port, nodes, own = map(int, sys.argv[1:4])
    seconds = float(sys.argv[4])
    fleet = Fleet(taihulight(nodes), port, own)
    fleet.come_up()
    gc.freeze()
    gc.disable()
    tell(fleet, "up")
    sys.stdin.readline()  # the word to begin
    sent_until_ns = time.time_ns()
    end_ns = sent_until_ns + round(seconds * 1e9)
    tell_at = time.monotonic()
    while sent_until_ns < end_ns:
        time.sleep(max(STEP_SECONDS - (time.time_ns() - sent_until_ns) / 1e9, 0.0))
        now_ns = time.time_ns()
        fleet.send_due(sent_until_ns, now_ns)
        sent_until_ns = now_ns
        fleet.links.poll(0.0)
        if time.monotonic() >= tell_at + TELL_SECONDS:
            tell_at = time.monotonic()
            tell(fleet, "playing")
    tell(fleet, "played")
    deadline = time.monotonic() + LAST_WORD_SECONDS
    missing = fleet.missing()
    while missing and time.monotonic() < deadline:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            fleet.links.poll(0.2)
        missing = fleet.missing()
    tell(fleet, "over", missing=missing)
    sys.stdin.read()  # connected until whoever started us has seen enough
    fleet.links.close()
    return 0


def tell(fleet: Fleet, what: str, **more: object) -> None:
    """One line for whoever started us."""
    said = {"what": what, "connections": fleet.connections, "waiting": fleet.links.unacknowledged}
    print(json.dumps({**said, **asdict(fleet.sent), **more}), flush=True)
    fleet.sent.late_seconds = 0.0


if __name__ == "__main__":
    sys.exit(main())
