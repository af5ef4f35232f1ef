"""Several agents of one name, as of a cloned image, at one mosquitto.

    python -m bench.hostile_clients.clones [--agents 6] [--seconds 180]

Real agents, each with its own spool, that all are `oss-1`, and a real aggregator with journal and archive.
The agents have the same client id, so each connection ends another one's. *Rows*: of the archive, by source,
stream, tick and component; *doubled*: those that are there more than once. *Two streams*: the aggregator's
count.
"""

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.dataset as ds

from bench.hostile_clients.site import OPEN, Site
from bench.machine import machine
from tests.support.shipped_brokers import program

DRAIN_SECONDS = 60.0


class CloneSite(Site):
    """Broker, aggregator and agents of one name."""

    def play(self, agents: int, seconds: float) -> str:
        """A line of the table."""
        (self.folder / "mosquitto.conf").write_text(OPEN.format(port=self.port, host=self.host))
        (self.folder / "aggregator.toml").write_text(
            f'site = "site"\n[mqtt]\nhost = "{self.host}"\nport = {self.port}\n'
            f'[http]\nlisten = "127.0.0.1:{self.http}"\n[archive]\ndirectory = "{self.folder}/archive"\n'
            f'[state]\ndirectory = "{self.folder}/state"\n'
        )
        with ExitStack() as stack:
            mosquitto = [program("mosquitto"), "-c", str(self.folder / "mosquitto.conf")]
            stack.enter_context(self.process(mosquitto, "mosquitto"))
            self.aggregator: subprocess.Popen[bytes] = stack.enter_context(
                self.process(self._command("aggregator", "laggard_aggregator.cli.daemon"), "aggregator")
            )
            self.until("the aggregator", lambda: self.figures().get("laggard_ready") == 1)
            with ExitStack() as clones:
                for number in range(agents):
                    name = f"agent-{number}"
                    (self.folder / f"{name}.toml").write_text(
                        f'site = "site"\nnode = "oss-1"\nrole = "storage"\nbatch_samples = 2\n'
                        f'collectors = ["host"]\n[mqtt]\nhost = "{self.host}"\nport = {self.port}\n'
                        f'[spool]\ndirectory = "{self.folder}/spool-{number}"\n'
                    )
                    clones.enter_context(self.process(self._command(name, "laggard_agent.cli"), name))
                time.sleep(seconds)
            # Each alone sends the rest of its spool.
            for number in range(agents):
                name = f"agent-{number}"
                with self.process(self._command(name, "laggard_agent.cli"), name):
                    time.sleep(DRAIN_SECONDS / agents)
            figures = self.figures()
        rows = ds.dataset(self.folder / "archive" / "kind=counters", partitioning="hive").to_table(
            columns=["source", "stream", "tick", "component"]
        )
        columns = [[str(value) for value in rows[name].to_pylist()] for name in rows.column_names]
        distinct = set(zip(*columns, strict=True))
        return (
            f"| {agents} | {rows.num_rows:,} | {rows.num_rows - len(distinct):,} "
            f"| {figures.get('laggard_duplicates_total', 0):,.0f} "
            f"| {figures.get('laggard_two_streams_total', 0):,.0f} |"
        )

    def _command(self, name: str, module: str) -> list[str]:
        return [sys.executable, "-P", "-m", module, "--config", str(self.folder / f"{name}.toml")]


def main() -> int:
    """Prints the table; 1 when rows are doubled."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=180.0)
    options = parser.parse_args()
    print(machine("aiomqtt", "pyarrow"))
    print("\n| agents | rows | doubled | duplicates dropped | two streams |")
    print("|---:|---:|---:|---:|---:|", flush=True)
    with TemporaryDirectory() as folder:
        line = CloneSite(Path(folder), tls=False).play(options.agents, options.seconds)
    print(line)
    return int(line.split("|")[3].strip() != "0")


if __name__ == "__main__":
    raise SystemExit(main())
