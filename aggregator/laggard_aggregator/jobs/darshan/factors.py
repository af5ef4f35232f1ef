"""Contributing factors (IOMiner II-D): of each critical file, and of a job by exclusive time (Eq. 2)."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from laggard_aggregator.jobs.darshan.job_tables import UNKNOWN, Accesses

FactorArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FactorColumns:
    """Factors of each record (R,); NaN where they cannot be judged.

    `small`: share of requests below 1 MiB. `nonconsecutive`: share of the requests that could be consecutive,
    and were not; the first of each rank on a file cannot. `collective`: 1 where collective I/O was used.
    `osts`: stripe count. `processes_per_ost`: processes on the file by stripe count. `metadata`: share of the
    record's time in I/O calls that went to opens, stats, seeks and the like.
    """

    small: FactorArray
    nonconsecutive: FactorArray
    collective: FactorArray
    osts: FactorArray
    processes_per_ost: FactorArray
    metadata: FactorArray

    def of_record(self, place: int) -> dict[str, float | None]:
        """Factors of one record; None where not judged."""
        return {name: _known(float(getattr(self, name)[place])) for name in FACTORS}


FACTORS = tuple(FactorColumns.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class JobFactors:
    """Factors of a job in one direction; None where not judged. `osts`: distinct OSTs of all its files."""

    small: float | None
    nonconsecutive: float | None
    collective: float | None
    osts: float | None
    processes_per_ost: float | None
    metadata: float | None

    def record(self) -> dict[str, float | None]:
        """By name."""
        return asdict(self)


def record_factors(accesses: Accesses) -> FactorColumns:
    """Factors of each record."""
    requests = accesses.requests.astype(np.float64)
    ranks = np.where(accesses.rank < 0, accesses.processes, 1)
    could_be = requests - ranks
    total = accesses.time_us + np.maximum(_other_time(accesses), 0) + accesses.meta_us
    has_layout = accesses.stripes > 0
    return FactorColumns(
        small=np.clip(_share(accesses.small, requests, accesses.small != UNKNOWN), 0, 1),
        nonconsecutive=np.clip(
            1.0 - _share(accesses.consecutive, could_be, accesses.consecutive != UNKNOWN), 0, 1
        ),
        collective=(accesses.collective > 0).astype(np.float64),
        osts=np.where(has_layout, accesses.stripes, np.nan),
        processes_per_ost=_share(accesses.processes, accesses.stripes, has_layout),
        metadata=np.clip(_share(accesses.meta_us, total, total > 0), 0, 1),
    )


def job_factors(accesses: Accesses, columns: FactorColumns, osts: int | None) -> JobFactors:
    """Means over the critical files, weighted by exclusive time (Eq. 2); `osts`: of the job, None unknown."""
    place, weight = accesses.path.place, accesses.path.exclusive.astype(np.float64)
    means = {name: _mean(getattr(columns, name)[place], weight) for name in FACTORS}
    is_collective = bool(accesses.collective.size and (accesses.collective > 0).any())
    return JobFactors(
        **{**means, "collective": float(is_collective), "osts": None if osts is None else float(osts)}
    )


def _other_time(accesses: Accesses) -> NDArray[np.int64]:
    """Time of the other direction."""
    other = "write" if accesses.direction == "read" else "read"
    micros: NDArray[np.int64] = accesses.rows[f"{other}_time_us"].to_numpy()
    return np.nan_to_num(micros).astype(np.int64)


def _share(part: NDArray[np.int64], whole: NDArray[np.generic], is_known: NDArray[np.bool_]) -> FactorArray:
    is_valid = is_known & (whole > 0)  # type: ignore[operator]
    shares: FactorArray = np.divide(part, whole, out=np.full(part.size, np.nan), where=is_valid)
    return shares


def _mean(values: FactorArray, weight: FactorArray) -> float | None:
    known = np.isfinite(values)
    return float((values[known] * weight[known]).sum() / weight[known].sum()) if known.any() else None


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
