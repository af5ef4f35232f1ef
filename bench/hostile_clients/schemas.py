"""CPU time and memory of a node whose schema grows with each batch.

    python -m bench.hostile_clients.schemas [--components 16384] [--seconds 60] [--per-second 5]

One machine in this process, without broker and disk, gets the messages of `--seconds` as fast as it takes
them: each batch has a schema with one component more than the one before. *CPU*: seconds of CPU for a second
of messages, 1 is all of the core on which verdicts of all nodes depend. The second row is ten nodes that
do so at once.
"""

import argparse
import resource
import time

from bench.machine import machine
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 1_000_000_000
START_NS = 1_800_000_000 * SECOND
FIELDS = tuple(map(Field, ("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "weighted_ms")))


def attack(nodes: int, components: int, seconds: int, per_second: int) -> str:
    """A line of the table."""
    target = Machine(ConfiguredMembership(()), lateness_seconds=5.0, site="site")
    payload = codec.Encoder().encode([0], [[tuple(range(len(FIELDS)))]], [0])
    all_components = [Component(f"{at:x}", "d") for at in range(components)]
    spent = accepted = 0.0
    for number in range(seconds * per_second):
        now_ns = START_NS + number * SECOND // per_second
        known = max(components - seconds * per_second + number + 1, 1)
        for node in (f"node-{at}" for at in range(nodes)):
            schema = Schema(
                node, "diskstats", bytes(16), number + 1, SECOND, 1, FIELDS, tuple(all_components[:known])
            )
            envelope = Envelope(
                *(Kind.COUNTERS, node, "diskstats", bytes(16), number, number + 1),
                *(now_ns, 0, 1, codec.DELTA_ZSTD, payload),
            )
            messages = [
                (
                    topics.schema_topic("site", "storage", node, "diskstats"),
                    wire.encode_schema(schema),
                    now_ns,
                ),
                (
                    topics.data_topic("site", "storage", node, "diskstats"),
                    wire.encode_envelope(envelope),
                    now_ns,
                ),
            ]
            begun = time.process_time()
            accepted += sum(1 for _ in target.receive(messages))
            spent += time.process_time() - begun
    refused = target.admission.refused
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"| {nodes} | {spent / seconds:.3f} | {accepted:,.0f} of {nodes * seconds * per_second:,} "
        f"| {dict(refused) or 0} | {memory:.0f} |"
    )


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--components", type=int, default=16_384)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--per-second", type=int, default=5)
    options = parser.parse_args()
    print(machine("msgpack"))
    print("\n| nodes | CPU | batches | refused | most memory, MiB |\n|---:|---:|---:|---|---:|", flush=True)
    for nodes in (1, 10):
        seconds = options.seconds if nodes == 1 else max(options.seconds // 10, 1)
        print(attack(nodes, options.components, seconds, options.per_second), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
