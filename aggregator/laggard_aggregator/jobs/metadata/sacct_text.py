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

from laggard_aggregator.jobs.metadata.local_times import LocalTimes
from laggard_aggregator.jobs.metadata.records import RECORDS, STATES
from laggard_aggregator.jobs.metadata.report import ReadReport
from laggard_common.errors import InputError

BLOCK_BYTES: Final = 16 << 20
MAX_LINE_CHARS: Final = 1 << 20
_FREE_TEXT: Final = frozenset(
    ("jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "extra")
)
_NUMBER: Final = r"^[0-9]{1,18}$"
_JOB: Final = r"^[0-9]{1,12}(_([0-9]{1,9}|\[[^\[\]]{1,1000}\]))?(\+[0-9]{1,9})?$"
_ARRAY: Final = r"^(?P<job>[0-9]+)_(?P<task>[0-9]*)"
_HET: Final = r"^(?P<job>[0-9]+)\+(?P<offset>[0-9]+)$"
_NAME: Final = r"^[0-9A-Za-z_.\-]{1,64}$"
_REQUIRED: Final = ("State", "Submit", "Start", "End", "NodeList")
_TEXTS: Final = {"user": "User", "account": "Account", "name": "JobName", "partition": "Partition"}
_COUNTS: Final = {
    "uid": ("UID",),
    "node_count": ("NNodes", "AllocNodes"),
    "tasks": ("NTasks",),
    "cpus": ("AllocCPUS", "NCPUS"),
}


class SacctText:
    """Parser of one text. `cluster`: for rows without one. Raises InputError for a header that lacks columns.

    `lines` is the number of the next line, for messages.
    """

    def __init__(self, header: str, cluster: str, times: LocalTimes, report: ReadReport) -> None:
        self._separator = "\x1f" if "\x1f" in header else "|"
        self._header = header
        names = [name.strip().lower() for name in header.split(self._separator)]
        if names and not names[-1]:
            names.pop()  # of -p
        self._width = len(names)
        self._place = {name: at for at, name in enumerate(names)}
        missing = [name for name in _REQUIRED if name.lower() not in self._place]
        if "jobidraw" not in self._place and "jobid" not in self._place:
            missing.insert(0, "JobIDRaw")
        if missing:
            raise InputError("", f"its first line is no header of sacct -P with {', '.join(missing)}")
        free = [name for name in names if name in _FREE_TEXT]
        self._joins = free == names[-1:]
        self._cluster = cluster
        self._times = times
        self._report = report
        self.lines = 2

    def table(self, lines: Sequence[str]) -> pa.Table:
        """Records of some lines, with the columns of RECORDS."""
        rows, numbers = self._rows(lines)
        columns = list(zip(*rows, strict=True)) or [()] * self._width
        self._columns = {name: pa.array(columns[at], pa.string()) for name, at in self._place.items()}
        self._numbers, self._rows_text = numbers, rows
        keep = pa.array(np.ones(len(rows), bool))
        raw = self._column("JobIDRaw", "JobID")
        step = pc.match_substring(raw, ".")
        self._report.steps += pc.sum(step).as_py() or 0
        keep = pc.invert(step)
        job = self._column("JobID", "JobIDRaw")
        keep = self._valid(
            keep, pc.match_substring_regex(raw, r"^[0-9]{1,12}$"), "no number of a job (JobIDRaw)"
        )
        keep = self._valid(keep, pc.match_substring_regex(job, _JOB), "no id of a job")
        return self._checked(keep, raw, job)

    def _checked(self, keep: pa.Array, raw: pa.Array, job: pa.Array) -> pa.Table:
        word = pc.replace_substring_regex(pc.utf8_upper(self._column("State")), r"[ +].*$", "")
        keep = self._valid(keep, pc.is_in(word, pa.array(sorted(STATES))), "no state of a job")
        for name, several in _COUNTS.items():
            cells = self._column(*several)
            good = pc.or_(pc.equal(cells, ""), pc.match_substring_regex(cells, _NUMBER))
            keep = self._valid(keep, good, f"no number ({name})")
        cluster = self._column("Cluster")
        cluster = pc.if_else(pc.equal(cluster, ""), self._cluster, cluster)
        keep = self._valid(keep, pc.match_substring_regex(cluster, _NAME), "no name of a cluster")
        where = np.flatnonzero(np.asarray(keep))
        self._columns = {name: each.take(pa.array(where)) for name, each in self._columns.items()}
        self._numbers = [self._numbers[at] for at in where]
        self._rows_text = [self._rows_text[at] for at in where]
        raw, job, cluster, word = (each.take(pa.array(where)) for each in (raw, job, cluster, word))
        stamps, doubtful, keep = self._stamps()
        keep = self._valid(pa.array(np.ones(len(raw), bool)), keep, "no time of submission, or no time")
        found = self._table(raw, job, cluster, word, stamps, doubtful).filter(keep)
        self._report.records += len(found)
        return found

    def _stamps(self) -> tuple[dict[str, pa.Array], pa.Array, pa.Array]:
        """Times by name, which are doubtful, and which rows have none that cannot be read."""
        names = ("Submit", "Eligible", "Start", "End")
        cells = {name.lower(): self._column(name) for name in names}
        elapsed = pc.cast(_digits(self._column("ElapsedRaw")), pa.float64())
        stamps, doubtful, valid = self._times.columns(cells, elapsed)
        self._report.ambiguous += int(np.asarray(doubtful).sum())
        return stamps, doubtful, pc.and_(valid, pc.is_valid(stamps["submit"]))

    def _table(
        self,
        raw: pa.Array,
        job: pa.Array,
        cluster: pa.Array,
        state: pa.Array,
        stamps: dict[str, pa.Array],
        doubtful: pa.Array,
    ) -> pa.Table:
        count = len(raw)
        array, het = pc.extract_regex(job, _ARRAY), pc.extract_regex(job, _HET)
        user, uid = self._column("User"), self._column("UID")
        columns = {
            "cluster": cluster,
            "raw_id": raw.cast(pa.int64()),
            "submit": pc.cast(stamps["submit"], pa.int64(), safe=False),
            "sluid": pc.replace_substring_regex(self._column("SLUID"), r"^.*[^0-9A-Za-z_.\-].*$", ""),
            "job": job,
            "array_job": _digits(pc.struct_field(array, "job")),
            "array_task": _digits(pc.struct_field(array, "task")),
            "het_job": _digits(pc.struct_field(het, "job")),
            "het_offset": _digits(pc.struct_field(het, "offset")),
            **{name: self._column(own) for name, own in _TEXTS.items()},
            **{name: _digits(self._column(*own)) for name, own in _COUNTS.items()},
            "user": pc.if_else(pc.equal(user, ""), uid, user),
            "state": state,
            "source": pa.array(["sacct"] * count, pa.string()),
            "exit_code": self._exit_codes(),
            **{name: stamps[name] for name in ("eligible", "start", "end")},
            "node_list": self._column("NodeList"),
            "doubtful": doubtful,
        }
        return pa.table(
            [columns.get(each.name, pa.nulls(count, each.type)) for each in RECORDS], schema=RECORDS
        )

    def _exit_codes(self) -> pa.Array:
        """Exit statuses; 128 and the signal where one ended the job."""
        parts = pc.extract_regex(self._column("ExitCode"), r"^(?P<status>[0-9]{1,5}):(?P<signal>[0-9]{1,5})$")
        status, signal = (_digits(pc.struct_field(parts, name)) for name in ("status", "signal"))
        return pc.if_else(pc.greater(signal, 0), pc.add(signal, 128), status)

    def _rows(self, lines: Sequence[str]) -> tuple[list[Sequence[str]], list[int]]:
        """Rows with as many cells as the header, and the numbers of their lines."""
        rows: list[Sequence[str]] = []
        numbers: list[int] = []
        separator, width, joins = self._separator, self._width, self._joins
        for number, line in enumerate(lines, self.lines):
            cells = line.split(separator)
            count = len(cells)
            if count == width + 1 and not cells[-1] and not joins:
                cells.pop()  # of -p
            elif count > width and joins:
                cells[width - 1 :] = [separator.join(cells[width - 1 :])]
            elif count != width or len(line) > MAX_LINE_CHARS:
                if line:
                    reason = (
                        "more columns than the header" if count > width else "fewer columns than the header"
                    )
                    self._report.leave_out(number, reason, line)
                continue
            if line != self._header:  # of files put together
                rows.append(cells)
                numbers.append(number)
        self.lines += len(lines)
        return rows, numbers

    def _valid(self, keep: pa.Array, good: pa.Array, reason: str) -> pa.Array:
        """`keep` without rows that are not `good`, which are counted and named."""
        good = pc.fill_null(good, False)
        wrong = np.flatnonzero(np.asarray(pc.and_(keep, pc.invert(good))))
        for at in wrong:
            text = self._separator.join(self._rows_text[at])
            self._report.leave_out(self._numbers[at], reason, text)
        return pc.and_(keep, good)

    def _column(self, *names: str) -> pa.Array:
        """Cells of the first of `names` that the header has; empty without any."""
        for name in names:
            if name.lower() in self._columns:
                return self._columns[name.lower()]
        return pa.array([""] * len(self._rows_text), pa.string())


def sacct_tables(file: BinaryIO, cluster: str, times: LocalTimes, report: ReadReport) -> Iterator[pa.Table]:
    """Yields the records of a text in portions, so that memory stays bounded. Raises InputError."""
    parser: SacctText | None = None
    for lines in _portions(file):
        if parser is None:
            parser = SacctText(lines.pop(0), cluster, times, report)
        yield parser.table(lines)
    if parser is None:
        raise InputError("", "is empty, expected the header line of sacct -P")


def _portions(file: BinaryIO) -> Iterator[list[str]]:
    """Yields the lines of blocks, without their ends; the rest of an overlong line is a line of its own."""
    rest = b""
    while block := file.read(BLOCK_BYTES):
        block = rest + block
        end = block.rfind(b"\n") + 1
        if not end and len(block) > MAX_LINE_CHARS:
            end = len(block)
        rest = block[end:]
        if end:
            yield _lines(block[:end])
    if rest:
        yield _lines(rest)


def _lines(block: bytes) -> list[str]:
    text = block.decode("utf-8", "replace").replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n")


def _digits(cells: pa.Array) -> pa.Array:
    """Numbers of cells, null for those that are empty or none."""
    good = pc.match_substring_regex(cells, _NUMBER)
    return pc.if_else(good, cells, None).cast(pa.int64())
