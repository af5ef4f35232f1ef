"""Text of `sacct -P`: its own header names in any order, separated by `|` or 0x1f.

sacct quotes nothing: a separator or a line feed within a name breaks its row. Such rows are counted and
named; none is guessed. Where a free text is the last column, and the only one, surplus separators can only be
part of it.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.files.beginning import beginning
from laggard_aggregator.jobs.records.local_times import LocalTimes
from laggard_aggregator.jobs.records.model import NO_LINE_FEED, ReadReport
from laggard_aggregator.jobs.records.settle import RECORDS, STATES, STEPS
from laggard_common.errors import InputError

BLOCK_BYTES: Final = 16 << 20
MAX_LINE_CHARS: Final = 1 << 20
_FREE_TEXT: Final = frozenset(
    ("jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "extra")
)
_NUMBER: Final = r"^[0-9]{1,18}$"
_WITH_UNIT: Final = r"^(?P<number>[0-9]{1,6})(?P<unit>[KMGTP])$"
_ROUNDED: Final = r"^[0-9]{1,6}\.[0-9]+[KMGTP]$"
_UNITS: Final = {unit: 1024**power for power, unit in enumerate("KMGTP", 1)}
_TIME_FORMS: Final = "expected times such as 2024-01-16T10:00:00, or seconds (SLURM_TIME_FORMAT=%s)"
_JOB: Final = r"^[0-9]{1,12}(_([0-9]{1,9}|\[[^\[\]]{1,1000}\]))?(\+[0-9]{1,9})?$"
_ARRAY: Final = r"^(?P<job>[0-9]+)_(?P<task>[0-9]*)"
_HET: Final = r"^(?P<job>[0-9]+)\+(?P<offset>[0-9]+)$"
_NAME: Final = r"^[0-9A-Za-z_.\-]{1,64}$"
_REQUIRED: Final = ("State", "Submit", "Start", "End", "NodeList")
_OTHER_HEADER: Final = "another header than the first line's: read the outputs of sacct one by one"
_STEPS_REQUIRED: Final = ("Start", "End", "NodeList")
_STEP: Final = r"^[0-9]{1,18}(\..*)?$"
_TEXTS: Final = {"user": "User", "account": "Account", "name": "JobName", "partition": "Partition"}
_COUNTS: Final = {
    "uid": ("UID",),
    "node_count": ("NNodes", "AllocNodes"),
    "tasks": ("NTasks",),
    "cpus": ("AllocCPUS", "NCPUS"),
}


class SacctText:
    """Parser of one text. `cluster`: for rows without one.

    Raises InputError for a header that lacks columns.
    """

    def __init__(
        self,
        header: str,
        cluster: str,
        times: LocalTimes,
        report: ReadReport,
        required: Sequence[str] = _REQUIRED,
    ) -> None:
        self._separator = "\x1f" if "\x1f" in header else "|"
        self._header = header
        names = [name.strip().lower() for name in header.split(self._separator)]
        if names and not names[-1]:
            names.pop()  # of -p
        self._names = names
        missing = [name for name in required if name.lower() not in names]
        if "jobidraw" not in names and "jobid" not in names:
            missing.insert(0, "JobIDRaw")
        if missing:
            problem = f"its first line is no header of sacct -P with {', '.join(missing)}"
            raise InputError("", f"{problem}: {beginning(header.encode())}")
        self._joins = [name for name in names if name in _FREE_TEXT] == names[-1:]
        self._cluster = cluster
        self._times = times
        self._report = report
        self._line = 2

    def table(self, lines: Sequence[str]) -> pa.Table:
        """Records of some lines, with the columns of RECORDS."""
        rows, numbers = self._rows(lines)
        cells = _Cells(self._names, rows, numbers, self._report)
        raw, job = cells.column("JobIDRaw", "JobID"), cells.column("JobID", "JobIDRaw")
        step = pc.match_substring(raw, ".")
        self._report.steps += pc.sum(step).as_py() or 0
        cells.keep = np.asarray(pc.invert(step))
        cells.require(pc.match_substring_regex(raw, r"^[0-9]{1,12}$"), "no number of a job (JobIDRaw)")
        cells.require(pc.match_substring_regex(job, _JOB), "no id of a job")
        state = pc.replace_substring_regex(pc.utf8_upper(cells.column("State")), r"[ +].*$", "")
        cells.require(pc.is_in(state, pa.array(sorted(STATES))), "no state of a job")
        for name, several in _COUNTS.items():
            texts = cells.column(*several)
            rounded = pc.match_substring_regex(texts, _ROUNDED)
            good = pc.or_(pc.or_(pc.equal(texts, ""), rounded), pc.is_valid(_counts(texts)))
            cells.require(good, f"no number ({name})")
            doubts = pc.sum(pc.and_(rounded, pa.array(cells.keep))).as_py()
            if doubts:
                self._report.doubts[f"rounded number ({name}), left unknown: run sacct with --noconvert"] += (
                    doubts
                )
        cluster = cells.column("Cluster")
        cluster = pc.if_else(pc.equal(cluster, ""), self._cluster, cluster)
        cells.require(pc.match_substring_regex(cluster, _NAME), "no name of a cluster")
        texts = {name.lower(): cells.column(name) for name in ("Submit", "Eligible", "Start", "End")}
        elapsed = pc.cast(_digits(cells.column("ElapsedRaw")), pa.float64())
        stamps, doubtful, readable = self._times.columns(texts, elapsed)
        cells.require(readable, _TIME_FORMS)
        cells.require(pc.is_valid(stamps["submit"]), "no time of submission")
        columns = {
            **_identity(cells, cells.kept(raw), cells.kept(job)),
            "cluster": cluster,
            "submit": pc.cast(stamps["submit"], pa.int64(), safe=False),
            "state": state,
            **{name: stamps[name] for name in ("eligible", "start", "end")},
            "doubtful": doubtful,
        }
        keep = pa.array(cells.keep)
        chosen = _table(cells, columns).filter(keep)
        self._report.records += len(chosen)
        self._report.ambiguous += pc.sum(pc.and_(doubtful, keep)).as_py() or 0
        return chosen

    def steps(self, lines: Sequence[str]) -> pa.Table:
        """Rows of some lines, of jobs and of steps, with the columns of STEPS."""
        cells = _Cells(self._names, *self._rows(lines), self._report)
        raw = cells.column("JobIDRaw", "JobID")
        good = pc.match_substring_regex(raw, _STEP)
        cells.require(good, "no number of a job or step (JobIDRaw)")
        texts = {name.lower(): cells.column(name) for name in ("Submit", "Eligible", "Start", "End")}
        elapsed = pc.cast(_digits(cells.column("ElapsedRaw")), pa.float64())
        stamps, doubtful, readable = self._times.columns(texts, elapsed)
        cells.require(readable, _TIME_FORMS)
        columns = {
            "raw_id": raw,
            "job": cells.column("JobID", "JobIDRaw"),
            "user": cells.column("User"),
            "name": cells.column("JobName"),
            "state": cells.column("State"),
            "node_list": cells.column("NodeList"),
            "node_count": _counts(cells.column("NNodes", "AllocNodes")),
            **stamps,
        }
        keep = pa.array(cells.keep)
        self._report.ambiguous += pc.sum(pc.and_(doubtful, keep)).as_py() or 0
        return pa.table([columns[name] for name in STEPS.names], schema=STEPS).filter(keep)

    def _rows(self, lines: Sequence[str]) -> tuple[list[Sequence[str]], list[int]]:
        """Rows with as many cells as the header, and the numbers of their lines.

        Raises InputError for a header of other columns, by which the rows behind it would be misread.
        """
        rows: list[Sequence[str]] = []
        numbers: list[int] = []
        separator, width, joins = self._separator, len(self._names), self._joins
        for number, line in enumerate(lines, self._line):
            cells = line.split(separator)
            count = len(cells)
            if count == width + 1 and not cells[-1] and not joins:
                cells.pop()  # of -p
            elif count > width and joins:
                cells[width - 1 :] = [separator.join(cells[width - 1 :])]
            elif count != width or len(line) > MAX_LINE_CHARS:
                if line:
                    amount = "more" if count > width else "fewer"
                    self._report.leave_out(f"line {number}", f"{amount} columns than the header", line)
                continue
            if line != self._header:  # of files put together
                if "State" in cells and not {"JobID", "JobIDRaw"}.isdisjoint(cells):
                    raise InputError("", f"line {number}: {_OTHER_HEADER}")
                rows.append(cells)
                numbers.append(number)
        self._line += len(lines)
        return rows, numbers


class _Cells:
    """Cells of some rows by column, and which rows are kept."""

    def __init__(
        self,
        names: Sequence[str],
        rows: Sequence[Sequence[str]],
        numbers: Sequence[int],
        report: ReadReport,
    ) -> None:
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        self._columns = {
            name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)
        }
        self._rows = rows
        self._numbers = numbers
        self._report = report
        self.keep: NDArray[np.bool_] = np.ones(len(rows), bool)

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, *names: str) -> pa.Array:
        """Cells of the first of `names` that the header has; empty without any."""
        for name in names:
            if name.lower() in self._columns:
                return self._columns[name.lower()]
        return pa.array([""] * len(self), pa.string())

    def kept(self, texts: pa.Array) -> pa.Array:
        """`texts` with null for rows that are left out, so that a cast does not fail."""
        return pc.if_else(pa.array(self.keep), texts, None)

    def require(self, good: pa.Array, reason: str) -> None:
        """Leaves out the rows that are not `good`; counts and names them."""
        good = np.asarray(pc.fill_null(good, False))
        for at in np.flatnonzero(self.keep & ~good).tolist():
            self._report.leave_out(f"line {self._numbers[at]}", reason, " ".join(self._rows[at]))
        self.keep = self.keep & good


def _identity(cells: _Cells, raw: pa.Array, job: pa.Array) -> dict[str, pa.Array]:
    """Number, displayed id and its parts, and Slurm's unique id where it has one."""
    array, het = pc.extract_regex(job, _ARRAY), pc.extract_regex(job, _HET)
    return {
        "raw_id": raw.cast(pa.int64()),
        "job": job,
        "sluid": pc.replace_substring_regex(cells.column("SLUID"), r"^.*[^0-9A-Za-z_.\-].*$", ""),
        "array_job": _digits(pc.struct_field(array, "job")),
        "array_task": _digits(pc.struct_field(array, "task")),
        "het_job": _digits(pc.struct_field(het, "job")),
        "het_offset": _digits(pc.struct_field(het, "offset")),
    }


def _table(cells: _Cells, columns: dict[str, pa.Array]) -> pa.Table:
    """`columns` and those that are plain cells, as a table with the columns of RECORDS."""
    user, uid = cells.column("User"), cells.column("UID")
    columns |= {
        **{name: cells.column(own) for name, own in _TEXTS.items()},
        **{name: _counts(cells.column(*own)) for name, own in _COUNTS.items()},
        "user": pc.if_else(pc.equal(user, ""), uid, user),
        "exit_code": _exit_codes(cells.column("ExitCode")),
        "node_list": cells.column("NodeList"),
        "source": pa.array(["sacct"] * len(cells), pa.string()),
    }
    return pa.table(
        [columns.get(field.name, pa.nulls(len(cells), field.type)) for field in RECORDS], schema=RECORDS
    )


def _exit_codes(texts: pa.Array) -> pa.Array:
    """Exit statuses; 128 and the signal where one ended the job."""
    parts = pc.extract_regex(texts, r"^(?P<status>[0-9]{1,5}):(?P<signal>[0-9]{1,5})$")
    status, signal = (_digits(pc.struct_field(parts, name)) for name in ("status", "signal"))
    return pc.if_else(pc.greater(signal, 0), pc.add(signal, 128), status)


def sacct_tables(file: BinaryIO, cluster: str, times: LocalTimes, report: ReadReport) -> Iterator[pa.Table]:
    """Yields the records of a text in portions, so that memory stays bounded. Raises InputError."""
    parser: SacctText | None = None
    for lines in _portions(file, report):
        if parser is None:
            parser = SacctText(lines.pop(0), cluster, times, report)
        yield parser.table(lines)
    if parser is None:
        raise InputError("", "is empty, expected the header line of sacct -P")


def step_tables(file: BinaryIO, times: LocalTimes, report: ReadReport) -> Iterator[pa.Table]:
    """Yields the rows of a text, of jobs and of steps, in portions. Raises InputError."""
    parser: SacctText | None = None
    for lines in _portions(file, report):
        if parser is None:
            parser = SacctText(lines.pop(0), "", times, report, _STEPS_REQUIRED)
        yield parser.steps(lines)
    if parser is None:
        raise InputError("", "is empty, expected the header line of sacct -P")


def _portions(file: BinaryIO, report: ReadReport) -> Iterator[list[str]]:
    """Yields the lines of blocks, without their ends; the rest of an overlong line is a line of its own.

    A last line without a line feed may lack digits: it is left out.
    """
    count = 0
    rest = b""
    while block := file.read(BLOCK_BYTES):
        block = rest + block
        end = block.rfind(b"\n") + 1
        if not end and len(block) > MAX_LINE_CHARS:
            end = len(block)
        rest = block[end:]
        if end:
            lines = _lines(block[:end])
            count += len(lines)
            yield lines
    if rest:
        report.leave_out(f"line {count + 1}", NO_LINE_FEED, rest[:100].decode("utf-8", "replace"))


def _lines(block: bytes) -> list[str]:
    text = block.decode("utf-8", "replace").replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n")


def _counts(cells: pa.Array) -> pa.Array:
    """Counts of cells, also those with a unit, such as 2K for 2,048: sacct prints exact ones so.

    Null for those that are empty, rounded (`2.05K`), or none.
    """
    parts = pc.extract_regex(cells, _WITH_UNIT)
    counts = _digits(cells)
    for unit, factor in _UNITS.items():
        number = pc.if_else(
            pc.equal(pc.struct_field(parts, "unit"), unit), pc.struct_field(parts, "number"), None
        )
        counts = pc.coalesce(counts, pc.multiply(number.cast(pa.int64()), factor))
    return counts


def _digits(cells: pa.Array) -> pa.Array:
    """Numbers of cells, null for those that are empty or none."""
    good = pc.match_substring_regex(cells, _NUMBER)
    return pc.if_else(good, cells, None).cast(pa.int64())
