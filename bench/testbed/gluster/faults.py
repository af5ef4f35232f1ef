"""What can be wrong with a brick or a server, each while a context lasts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.testbed.hosts import INTERFACE, Host
from bench.testbed.luns import CannotRunError, run

PERIOD_US = 100_000


@contextmanager
def cpu_quota(group: Path, quota_us: int) -> Iterator[None]:
    """Give a cgroup's processes together `quota_us` of CPU time in every 100 ms."""
    (group / "cpu.cfs_period_us").write_text(f"{PERIOD_US}\n")
    try:
        (group / "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
        yield
    finally:
        (group / "cpu.cfs_quota_us").write_text("-1\n")


@contextmanager
def packet_loss(server: Host, percent: int) -> Iterator[None]:
    """Drop `percent` of the packets that come in on a host's interface."""
    if shutil.which("nft") is None:
        raise CannotRunError("nft is not installed (package nftables)")

    def nft(*statement: str) -> None:
        run(*server.command("nft", *statement))

    hook = "{ type filter hook input priority 0 ; }"
    random = ["numgen", "random", "mod", "100", "<", str(percent)]
    try:
        nft("add", "table", "inet", "loss")
        nft("add", "chain", "inet", "loss", "input", hook)
        nft("add", "rule", "inet", "loss", "input", "iifname", INTERFACE, *random, "drop")
        yield
    finally:
        nft("delete", "table", "inet", "loss")
