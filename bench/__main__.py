"""All benchmarks, one after another: `python -m bench` or `make bench`. Each also runs alone, with --help."""

import argparse
import subprocess
import sys
import time

BENCHES = (
    "bench.wire",
    "bench.bytes_a_day",
    "bench.agent",
    "bench.ingest",
    "bench.mqtt_readers",
    "bench.archive",
    "bench.cdf",
    "bench.laggard",
    "bench.functions",
    "bench.lustre",
    "bench.fntrace",
    "bench.net",
    "bench.fuzz",
    "bench.page",
    "bench.jobs_phases",
    "bench.jobs_compare",
    "bench.jobs_modes",
    "bench.jobs_advice",
    "bench.accuracy.perseus",
    "bench.accuracy.simulate",
)


def main() -> int:
    """Runs every benchmark; 1 when one of them failed or could not run, after all others have run."""
    argparse.ArgumentParser(prog="python -m bench", description=__doc__).parse_args()
    failed = []
    for name in BENCHES:
        print(f"\n## {name}\n", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", name], check=False)
        if done.returncode:
            failed.append(f"{name}: exit code {done.returncode}")
        print(f"\n({time.monotonic() - began:.0f} s)", flush=True)
    for line in failed:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
