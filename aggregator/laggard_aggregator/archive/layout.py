"""Where the archive keeps what: `kind=K/source=S/date=D/site=T/*.parquet` below its folder."""

from pathlib import Path

KINDS = ("counters", "schemas", "closes", "verdicts", "windows", "alarms", "groups")


def is_archive(directory: Path) -> bool:
    """Whether this folder holds an archive."""
    return any((directory / f"kind={kind}").is_dir() for kind in KINDS)
