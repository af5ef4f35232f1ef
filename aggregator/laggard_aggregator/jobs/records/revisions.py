"""The order of the revisions of a job, and the last ones that an archive has.

The last revision of a key is the greatest by finality, the scheduler's time of the change, time of reading
(of files, which do not tell it, the latest time in the record), trust in the source, and content. So the
outcome does not depend on the order in which records are read, and a record that is read again changes
nothing.
"""

import hashlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from laggard_aggregator.jobs.records.settle import finality

Revisions = NDArray[Any]
"""Rows of dtype REVISION. Keys and contents are digests of 64 bits: among ten million keys the chance that
two share a digest is 3 in a million."""

REVISION: Final = np.dtype(
    [
        ("key", np.uint64),
        ("finality", np.int8),
        ("modified", np.float64),
        ("revision_at", np.int64),
        ("trust", np.int8),
        ("content", np.uint64),
    ]
)
_ORDER: Final = ("finality", "modified", "revision_at", "trust", "content")
_SOURCES: Final = ("", "cgroup", "hook", "flux", "lsf", "pbs", "jsonl", "sacct_json", "sacct")
"""Sources of records, the least trusted first."""
_BESIDE_CONTENT: Final = ("job_key", "revision_at")
_SEPARATOR: Final = "\x1f"
_STEP_NS: Final = 1_000
_MOVE_NS: Final = 1_000_000


def revisions(jobs: pa.Table) -> Revisions:
    """Key, order and content of each row of a table of kind `jobs`."""
    records = np.zeros(len(jobs), REVISION)
    if not len(jobs):
        return records
    state, end = _plain(jobs["state"]), _plain(jobs["end"])
    records["key"] = _digests(_plain(jobs["job_key"]))
    records["finality"] = finality(state, end)
    records["modified"] = pc.fill_null(_plain(jobs["modified"]), 0.0).to_numpy(zero_copy_only=False)
    records["revision_at"] = _plain(jobs["revision_at"]).cast(pa.int64()).to_numpy(zero_copy_only=False)
    trust = pc.index_in(_plain(jobs["source"]), pa.array(_SOURCES))
    records["trust"] = pc.fill_null(trust, 0).to_numpy(zero_copy_only=False)
    records["content"] = _digests(_contents(jobs))
    return records


def last_rows(records: Revisions) -> NDArray[np.int64]:
    """Places of the last revision of each key, in the order of the keys."""
    order = np.lexsort([*(records[name] for name in reversed(_ORDER)), records["key"]])
    keys = records["key"][order]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = keys[1:] != keys[:-1]
    return order[is_last]


class LastRevisions:
    """The last revision of each key known so far, in the order of the keys."""

    def __init__(self) -> None:
        self._known = np.zeros(0, REVISION)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, records: Revisions) -> None:
        """Adds revisions that the archive has; of each key its newest by `revision_at` counts."""
        both = np.concatenate([self._known, records])
        order = np.lexsort([both["revision_at"], both["key"]])
        both = both[order]
        is_last = np.ones(len(both), bool)
        is_last[:-1] = both["key"][1:] != both["key"][:-1]
        self._known = both[is_last]

    def changes(self, records: Revisions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the rows to write, one a key, and their `revision_at`, beyond that of the archive's row.

        A row is written if its key is new, or if it is later than the archive's and has another content.
        """
        last = last_rows(records)
        new = records[last]
        place = np.searchsorted(self._known["key"], new["key"])
        known = np.zeros(len(new), REVISION)
        inside = place < len(self._known)
        known[inside] = self._known[place[inside]]
        has = inside & (known["key"] == new["key"])
        write = ~has | ((new["content"] != known["content"]) & _is_later(new, known))
        at = new["revision_at"].copy()
        at[has] = np.maximum(at[has], known["revision_at"][has] + _STEP_NS)
        return last[write], at[write]


def _is_later(new: Revisions, known: Revisions) -> NDArray[np.bool_]:
    """Whether each row of `new` follows that of `known` in the order of revisions."""
    later = np.zeros(len(new), bool)
    equal = np.ones(len(new), bool)
    for name in _ORDER:
        own, other = new[name], known[name]
        if name == "revision_at":  # the archive's may be moved beyond that of an earlier row
            own, other = own // _MOVE_NS, other // _MOVE_NS
        later |= equal & (own > other)
        equal &= own == other
    return later


def _contents(jobs: pa.Table) -> pa.Array:
    """All columns of each row that make its content, as one text."""
    texts = [
        pc.fill_null(_plain(jobs[field.name]).cast(pa.string()), "\x00")
        for field in jobs.schema
        if field.name not in _BESIDE_CONTENT
    ]
    return pc.binary_join_element_wise(*texts, _SEPARATOR)


def _digests(texts: pa.Array) -> NDArray[np.uint64]:
    """Stable digests of texts."""
    blake = hashlib.blake2b
    digests = b"".join([blake(text, digest_size=8).digest() for text in texts.cast(pa.binary()).to_pylist()])
    return np.frombuffer(digests, np.uint64)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array without dictionary."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
