"""So many agents publish in one instant, by TLS, through the broker as it is shipped."""

import time
from pathlib import Path

from bench.machine import machine
from bench.scale.certificates import NodeCertificates
from bench.scale.fleet import Fleet
from bench.scale.shapes import Shape
from bench.scale.site import Detection, LoadedSite

ROUNDS = 3
PAUSE_SECONDS = 3.0
_PATIENCE_SECONDS = 120.0


def burst(folder: Path, agents: int) -> int:
    """Prints a line a round; 1 when a message was lost, came twice or was refused."""
    shape = Shape("compute", agents, 1, 8, 10)
    site = LoadedSite(folder, Detection(), tls=True)
    print(machine("uvloop"))
    with site.running():
        began = time.monotonic()
        certificates = NodeCertificates(folder / "ca", shape.names())
        fleet = Fleet((shape,), site.port, agents, certificates.context)
        print(f"\n{agents:,} certificates after {time.monotonic() - began:.0f} s", flush=True)
        fleet.come_up()
        site.until("the schemas", lambda: site.figures()["laggard_messages_total"] >= 2 * agents)
        print(f"{fleet.connections:,} connections after {time.monotonic() - began:.0f} s\n")
        print("| round | messages | sent within | the broker had all after | all acknowledged after | lost |")
        print("|---:|---:|---:|---:|---:|---:|", flush=True)
        for number in range(ROUNDS):
            until = time.monotonic() + PAUSE_SECONDS
            while time.monotonic() < until:
                fleet.links.poll(0.1)
            print(f"| {number + 1} | {agents:,} | {' | '.join(_round(fleet))} |", flush=True)
        figures = site.figures()
        missing = fleet.missing()
        fleet.links.close()
    bad = {
        name: figures.get(f"laggard_{name}_total", 0.0)
        for name in ("duplicates", "gaps", "wire_errors", "refused_messages", "queue_dropped_messages")
    }
    taken = figures["laggard_samples_total"]
    print(
        f"\nsamples sent: {fleet.sent.samples:,}, taken: {taken:,.0f}; lost: {missing:,} batches; "
        + ", ".join(f"{name.replace('_', ' ')}: {n:.0f}" for name, n in bad.items())
    )
    return 1 if missing or taken != fleet.sent.samples or any(bad.values()) else 0


def _round(fleet: Fleet) -> list[str]:
    """What happened in one: seconds, and how many were never acknowledged."""
    began = time.monotonic()
    within = fleet.send_at_once()
    fleet.links.until(lambda: not fleet.links.unacknowledged, _PATIENCE_SECONDS)
    had = time.monotonic() - began
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (missing := fleet.missing()) and time.monotonic() < deadline:
        fleet.links.poll(0.1)
    return [f"{within:.2f} s", f"{had:.2f} s", f"{time.monotonic() - began:.1f} s", f"{missing:,}"]
