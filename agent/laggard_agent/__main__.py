"""The command `laggard-agent`, and `python -m laggard_agent`: `cli` in a process of its own."""

import sys

from laggard_agent.lazy_imports import postpone


def main() -> int:
    """Runs the command; returns its exit code."""
    postpone()  # before anything imports asyncio
    from laggard_agent import cli  # noqa: PLC0415

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
