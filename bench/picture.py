"""The demo's screen as a picture for docs/start.md: `python -m bench.picture docs/demo.svg` (needs tmux)."""

import argparse
import io
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 112, 30
ALARM = "alarm on"
AFTER_SECONDS = 4.0
"""How long after the first alarm the picture is taken."""


def main(argv: list[str] | None = None) -> int:
    """Runs the demo in a terminal of its own up to its first alarm and keeps the screen; 1 without one."""
    parser = argparse.ArgumentParser(prog="python -m bench.picture", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to wait for the alarm")
    args = parser.parse_args(argv)
    session = f"laggard-{os.getpid()}"
    command = f"{sys.executable} -m laggard_aggregator.cli.main demo"
    size = ("-x", str(COLUMNS), "-y", str(ROWS))
    subprocess.run(["tmux", "new-session", "-d", "-s", session, *size, command], check=True)
    try:
        screen = _screen_with_alarm(session, args.seconds)
    finally:
        subprocess.run(["tmux", "send-keys", "-t", session, "C-c"], check=False)
    if screen is None:
        print("no alarm was shown", file=sys.stderr)
        return 1
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(screen.rstrip()))
    args.output.write_text(console.export_svg(title="make demo"))
    return 0


def _screen_with_alarm(session: str, seconds: float) -> str | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.5)
        if ALARM in _screen(session):
            time.sleep(AFTER_SECONDS)
            return _screen(session)
    return None


def _screen(session: str) -> str:
    shown = subprocess.run(
        ["tmux", "capture-pane", "-p", "-e", "-t", session], capture_output=True, text=True, check=True
    )
    return shown.stdout


if __name__ == "__main__":
    sys.exit(main())
