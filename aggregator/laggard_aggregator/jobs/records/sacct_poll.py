"""Polls Slurm's database with sacct.

Records change after they look final, so each poll reaches `overlap` behind the last successful one. sacct
shows the jobs of others to operators alone, and leaves them out in silence otherwise: a poll without such
rights is refused. Names, which may hold anything, come by a query of their own, so that none can forge a
record.
"""

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import pyarrow as pa

from laggard_aggregator.archive.table import TIME
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import ReadReport
from laggard_aggregator.jobs.records.settle import RECORDS, settled, with_late_ends
from laggard_aggregator.jobs.records.sources.sacct_text import sacct_tables
from laggard_common.errors import ServiceError

SEPARATOR: Final = "\x1f"
COLUMNS: Final = (
    "JobIDRaw,JobID,Cluster,User,UID,Account,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,NNodes,NCPUS"
    ",ExitCode,NodeList"
)
NAME_COLUMNS: Final = "JobIDRaw,Submit,Cluster,JobName"
MAX_OUTPUT_BYTES: Final = 1 << 30
TIMEOUT_SECONDS: Final = 600.0
_BLOCK: Final = 1 << 20
_OPERATORS: Final = ("Operator", "Administrator")
_NAME_CHARS: Final = 1024

Names = Mapping[tuple[str, str, str], str]
"""Names of jobs by raw id, submission and cluster."""


class PollError(ServiceError):
    """Slurm's database cannot be polled."""


class Commands(Protocol):
    """Runs programs of Slurm."""

    def output(self, command: Sequence[str]) -> BinaryIO:
        """The standard output as a file. Raises PollError when the program fails."""
        ...


class SlurmCommands:
    """Runs programs with a bounded output and time; `stop` ends the one that runs, and fails later ones."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS, max_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def stop(self) -> None:
        """Ends the program that runs."""
        self._stopped = True
        if self._running is not None:
            with suppress(OSError):
                self._running.kill()

    def output(self, command: Sequence[str]) -> BinaryIO:
        """As in `Commands`; the file has no name and is to be closed."""
        name = command[0]
        environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's
        try:
            with tempfile.TemporaryFile() as errors, self._process(command, environment, errors) as process:
                late = threading.Timer(self._timeout_seconds, process.kill)
                late.start()
                try:
                    self._copy(process, file, name)
                    code = process.wait()
                finally:
                    late.cancel()
                    process.kill()
                if code:
                    errors.seek(0)
                    said = " ".join(errors.read(500).decode("utf-8", "replace").split())
                    ended = said or (f"ended by signal {-code}" if code < 0 else f"exit code {code}")
                    raise PollError(f"{name}: {ended}")
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file

    @contextmanager
    def _process(
        self, command: Sequence[str], environment: Mapping[str, str], errors: BinaryIO
    ) -> Iterator["subprocess.Popen[bytes]"]:
        if self._stopped:
            raise PollError("stopped")
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        except OSError as exc:
            raise PollError(f"{command[0]}: {exc.strerror or exc}") from exc
        with process:
            self._running = process
            try:
                yield process
            finally:
                self._running = None

    def _copy(self, process: "subprocess.Popen[bytes]", file: BinaryIO, name: str) -> None:
        assert process.stdout is not None
        size = 0
        while block := process.stdout.read(_BLOCK):
            size += len(block)
            if size > self._max_bytes:
                raise PollError(f"{name}: more than {self._max_bytes >> 20} MiB: lower jobs.overlap_days")
            file.write(block)


def check_rights(commands: Commands, user: str, uid: int) -> None:
    """Raises PollError for a user to whom sacct does not show the jobs of others."""
    if uid == 0:
        return
    query = ["sacctmgr", "-n", "-P", "show", "user", f"name={user}", "format=AdminLevel"]
    with commands.output(query) as file:
        level = file.read(200).decode("utf-8", "replace").strip()
    if level in _OPERATORS:
        return
    remedy = f"sacctmgr modify user {user} set AdminLevel=Operator"
    raise PollError(f"sacct may hide the jobs of others from user {user}: {remedy}")


def controller_start(commands: Commands) -> float | None:
    """The time at which slurmctld was started; None while it does not answer."""
    try:
        with commands.output(["scontrol", "show", "config"]) as file:
            said = file.read(_BLOCK).decode("utf-8", "replace")
    except PollError:
        return None
    match = re.search(r"^BOOT_TIME\s*=\s*(\d{9,11})\s*$", said, re.MULTILINE)
    return float(match[1]) if match else None


def poll_tables(  # noqa: PLR0917
    commands: Commands,
    since: float,
    now_ns: int,
    cluster: str,
    report: ReadReport,
    restarts: Sequence[float] = (),
) -> Iterator[pa.Table]:
    """Yields the records of jobs since `since`, with the columns of kind `jobs`, read at `now_ns`.

    `restarts`: times at which slurmctld was started; ends soon after them are doubtful. Raises PollError, and
    InputError for output that is not sacct's.
    """
    with commands.output(_sacct(since, NAME_COLUMNS)) as file:
        names = _names(file)
    with commands.output(_sacct(since, COLUMNS)) as file:
        for table in sacct_tables(file, cluster, LocalTimes(), report):
            yield with_late_ends(settled(_named(_stamped(table, now_ns), names)), restarts)


def _sacct(since: float, columns: str) -> list[str]:
    start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    options = ["-X", "-P", "-D", "-a", "--noconvert", f"--delimiter={SEPARATOR}"]
    return ["sacct", *options, "-S", start, "-o", columns]


def _names(file: BinaryIO) -> Names:
    """Names by key; a key with several is left out, as a name may hold lines that look like rows."""
    name_of: dict[tuple[str, str, str], str] = {}
    several: set[tuple[str, str, str]] = set()
    file.readline(_BLOCK)
    while line := file.readline(_BLOCK):
        cells = line.decode("utf-8", "replace").rstrip("\n").split(SEPARATOR, 3)
        if len(cells) != 4:
            continue  # the rest of a name
        key, name = (cells[0], cells[1], cells[2]), cells[3][:_NAME_CHARS]
        if name_of.setdefault(key, name) != name:
            several.add(key)
    return {key: name for key, name in name_of.items() if key not in several}


def _named(table: pa.Table, names: Names) -> pa.Table:
    parts = (table[name].cast(pa.string()).to_pylist() for name in ("raw_id", "submit", "cluster"))
    keys = zip(*parts, strict=True)
    column = pa.array([names.get(key, "") for key in keys], pa.string())
    return table.set_column(RECORDS.get_field_index("name"), RECORDS.field("name"), column)


def _stamped(table: pa.Table, now_ns: int) -> pa.Table:
    times = pa.array([now_ns] * len(table), pa.int64()).cast(TIME)
    return table.set_column(RECORDS.get_field_index("revision_at"), RECORDS.field("revision_at"), times)


def user_name(uid: int) -> str:
    """Name of a user, the number without one."""
    import pwd  # noqa: PLC0415 - of POSIX alone

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def state_path(directory: Path | None) -> Path | None:
    """The file that keeps the time of the last poll; None without `[state]`."""
    return directory / "sacct_poll.json" if directory is not None else None
