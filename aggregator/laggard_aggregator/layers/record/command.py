"""Runs `laggard layers record` with the options of the command line."""

import argparse
import sys
from pathlib import Path

from laggard_aggregator.layers.record.session import RecordOptions, record
from laggard_common.errors import ConfigError
from laggard_common.visible import visible


def run(args: argparse.Namespace) -> int:
    """Records and prints a summary; returns 0, or 1 if the command failed. Raises LaggardError."""
    command = tuple(args.command[1:] if args.command[:1] == ["--"] else args.command)
    output: Path | None = args.output
    if output is None and len(command) > 2 and command[-2] in {"-o", "--output"}:
        output, command = Path(command[-1]), command[:-2]  # it may stand last, too
    if output is None:
        raise ConfigError("", ["expected -o DIR"])
    if bool(command) == bool(args.pid):
        raise ConfigError("", ["expected either --pid N or -- COMMAND"])
    options = RecordOptions(
        output=output,
        pids=tuple(args.pid),
        command=command,
        seconds=args.seconds,
        buffer_kib=args.buffer_kib,
        max_bytes=args.max_mib << 20,
        files=tuple(Path(path) for path in args.file),
        file_system=args.file_system,
    )
    outcome = record(options)
    print(
        f"{outcome.lines} events, {outcome.lost} lost, {len(outcome.files)} files on devices "
        f"{' '.join(outcome.devices) or 'unknown'}: {visible(str(output))}",
        file=sys.stderr,
    )
    if outcome.lost:
        print("events were lost: raise --buffer-kib", file=sys.stderr)
    if outcome.stopped:
        print(f"the recording ended at {args.max_mib} MiB: raise --max-mib", file=sys.stderr)
    for remark in outcome.remarks:
        print(f"laggard layers record: {visible(remark)}", file=sys.stderr)
    return 1 if outcome.exit_code else 0
