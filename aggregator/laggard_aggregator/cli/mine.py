"""`laggard mine`: why a job's I/O was slow."""

import argparse
import os
import sys

from laggard_aggregator.files.json_line import line
from laggard_aggregator.jobs.darshan.darshan_library import without_pandas
from laggard_aggregator.jobs.darshan.judged_logs import judged_logs
from laggard_aggregator.status.text_table import terminal_width
from laggard_common.errors import InputError
from laggard_common.visible import visible


def run(args: argparse.Namespace) -> int:
    """Judges logs; returns 0, or 2 when one cannot be read. Raises LaggardError."""
    with without_pandas():
        return _judge(args)


def _judge(args: argparse.Namespace) -> int:
    code = 0
    is_first = True
    for judged in judged_logs(args.logs, os.cpu_count() or 1):
        if isinstance(judged, InputError):
            code = judged.exit_code
            if args.json:
                record = {"record": "not_judged", "job": None, "what": judged.path, "reason": judged.reason}
                print(line(record))
            print(visible(f"laggard mine: {judged}"), file=sys.stderr)
            continue
        from laggard_aggregator.jobs.darshan import records, screen

        if args.json:
            for record in records.verdict_records(judged):
                print(line(record))
            continue
        if not is_first:
            print()
        is_first = False
        for text in screen.verdict_lines(judged, terminal_width(sys.stdout)):
            print(visible(text))
    return code
