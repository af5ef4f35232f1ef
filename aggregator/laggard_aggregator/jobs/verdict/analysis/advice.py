"""Advice to the owner of a job: deterministic rules with trigger, number, suggestion and the call."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from laggard_aggregator.jobs.verdict.analysis.advised_gain import (
    UNKNOWN_WAITS,
    RequestWaits,
    of_larger_requests,
    of_no_requests,
    seconds,
)

KIB, MIB = 2.0**10, 2.0**20
NON_TRIVIAL_BYTES = 200e6
"""Jobs that move less are given no advice (NSDI '19, section 4: 200 MB)."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Totals of one job. None, or an empty mapping: unknown, which triggers no rule.

    `modes`: share of the volume by direction and mode. `file_bytes`: bytes of different places in files, so
    what is read twice counts once. `metadata_rate`: operations a second in phases. `forwarder_bytes`,
    `server_bytes`: read by them on behalf of the job. `largest_shared_file`: bytes, with its stripes.
    `waiting`: from which the gain of some rules follows.
    """

    nodes: int
    read_bytes: float
    written_bytes: float
    reads: float | None = None
    writes: float | None = None
    opens: float | None = None
    files: float | None = None
    metadata_rate: float | None = None
    file_bytes: float | None = None
    forwarder_bytes: float | None = None
    server_bytes: float | None = None
    modes: Mapping[str, Mapping[str, float]] | None = None
    largest_shared_file: float | None = None
    stripes: int | None = None
    waiting: RequestWaits = UNKNOWN_WAITS


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice. `factor`: the number that triggers, as a multiple of its limit."""

    kind: str
    factor: float
    share: float
    text: str
    advice: str


MANY_NODES = 32
LARGE_VOLUME = 10e9
SMALL_REQUEST = 64 * KIB
SMALL_FILE = 1 * MIB
MANY_FILES = 1000
MDOPS = 300.0
OPENS_PER_MIB = 50.0
AMPLIFICATION = 1.5
RE_READS = 2.0
LARGE_SHARED_FILE = 10e9
_MAIN_SHARE = 0.5
"""Share of a direction's volume from which a mode is the job's mode."""


def advice(job: Footprint) -> list[Advice]:
    """All advice on a job, that on the larger share of its volume first."""
    if job.read_bytes + job.written_bytes < NON_TRIVIAL_BYTES:
        findings = list(_metadata(job))
    else:
        findings = [finding for rule in RULES for finding in rule(job)]
    return sorted(findings, key=lambda finding: (-finding.share, finding.kind))


def _volume(job: Footprint, direction: str) -> float:
    return job.read_bytes if direction == "read" else job.written_bytes


def _share(job: Footprint, size: float) -> float:
    return size / max(job.read_bytes + job.written_bytes, 1.0)


def _modes(job: Footprint, mode: str) -> Iterator[tuple[str, float, float]]:
    """Direction, volume and share of it in `mode`, of the directions with a volume of interest."""
    for direction, shares in (job.modes or {}).items():
        volume = _volume(job, direction)
        if volume >= NON_TRIVIAL_BYTES and shares.get(mode, 0.0) >= _MAIN_SHARE:
            yield direction, volume, shares[mode]


def _shared_file(job: Footprint) -> Iterator[Advice]:
    for direction, volume, share in _modes(job, "N-1"):
        if job.nodes > MANY_NODES:
            yield Advice(
                "shared file",
                job.nodes / MANY_NODES,
                _share(job, volume * share),
                f"{share:.0%} of the {direction} volume goes to one file from {job.nodes} nodes",
                "Aggregate into fewer writers: MPI-IO collective calls (MPI_File_write_at_all, hint "
                "cb_nodes), or a file per group of processes",
            )


def _single_process(job: Footprint) -> Iterator[Advice]:
    for direction, volume, share in _modes(job, "1-1"):
        if volume * share >= LARGE_VOLUME and job.nodes > 1:
            yield Advice(
                "single process",
                volume * share / LARGE_VOLUME,
                _share(job, volume * share),
                f"one process does {share:.0%} of the {direction} volume, {volume * share / 1e9:.3g} GB",
                "Let several processes do it: MPI_File_write_at_all, parallel HDF5 or NetCDF-4 "
                "(H5Pset_fapl_mpio, nc_create_par)",
            )


def _small_requests(job: Footprint) -> Iterator[Advice]:
    spent = job.waiting
    for kind, volume, count, waited in (
        ("write", job.written_bytes, job.writes, spent.writes),
        ("read", job.read_bytes, job.reads, spent.reads),
    ):
        if count and volume >= NON_TRIVIAL_BYTES and volume / count < SMALL_REQUEST:
            mean = volume / count
            gain = _gain(job, of_larger_requests(spent, waited, mean), f"{kind}s")
            yield Advice(
                f"small {kind}s",
                SMALL_REQUEST / mean,
                _share(job, volume),
                f"the mean {kind} is {mean / KIB:.3g} KiB",
                "Use a larger buffer: setvbuf with 4 MiB, or collect records and call "
                f"{kind} with 1 MiB or more{gain}",
            )


def _metadata(job: Footprint) -> Iterator[Advice]:
    volume = (job.read_bytes + job.written_bytes) / MIB
    rate = job.metadata_rate or 0.0
    if rate > MDOPS:
        saved = of_no_requests(job.waiting, job.waiting.metadata)
        gain = _gain(job, saved, "metadata operations")
        yield Advice(
            "metadata rate",
            rate / MDOPS,
            0.0,
            f"{rate:,.0f} metadata operations a second in its phases",
            "Keep files open, and stat and open by one process that broadcasts (MPI_Bcast); put trees of "
            f"small files into one image (squashfs, HDF5){gain}",
        )
    if job.opens is not None and job.opens >= MANY_FILES and job.opens > OPENS_PER_MIB * volume:
        yield Advice(
            "opens",
            job.opens / max(OPENS_PER_MIB * volume, 1.0),
            0.0,
            f"{job.opens:,.0f} files are opened for {volume:,.0f} MiB",
            "Open a file once and keep it open: move open and close out of the loop",
        )


def _gain(job: Footprint, saved: float | None, work: str) -> str:
    """The promise of `saved` seconds a node, to be added to advice; empty where they are unknown."""
    if saved is None:
        return ""
    job_takes = seconds(job.waiting.job)
    return f"; that would save a node about {seconds(saved)} of waiting for {work}, in a job of {job_takes}"


def _amplification(job: Footprint) -> Iterator[Advice]:
    if job.read_bytes >= NON_TRIVIAL_BYTES:
        below = (("forwarders", job.forwarder_bytes), ("servers", job.server_bytes))
        moved, layer = max((moved or 0.0, layer) for layer, moved in below)
        factor = moved / job.read_bytes
        if factor > AMPLIFICATION:
            yield Advice(
                "amplification",
                factor,
                _share(job, job.read_bytes),
                f"{layer} read {factor:.1f} times the bytes that the job asks for",
                "Reduce read-ahead for random reads: posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), or a "
                f"smaller read-ahead a file on the {'forwarders' if layer == 'forwarders' else 'clients'}",
            )


def _stripes(job: Footprint) -> Iterator[Advice]:
    size = job.largest_shared_file
    if size is not None and job.stripes == 1 and size >= LARGE_SHARED_FILE and job.nodes > 1:
        yield Advice(
            "striping",
            size / LARGE_SHARED_FILE,
            min(_share(job, size), 1.0),
            f"a shared file of {size / 1e9:.3g} GB lies on one OST",
            "Stripe it over more OSTs before it is written: lfs setstripe -c 8 DIRECTORY",
        )


def _re_reads(job: Footprint) -> Iterator[Advice]:
    if job.file_bytes and job.read_bytes >= NON_TRIVIAL_BYTES:
        factor = job.read_bytes / job.file_bytes
        if factor > RE_READS:
            yield Advice(
                "re-reads",
                factor,
                _share(job, job.read_bytes),
                f"the same bytes are read {factor:.1f} times",
                "Read once and distribute: one process reads, MPI_Bcast; or copy the input to node-local "
                "storage first",
            )


def _small_files(job: Footprint) -> Iterator[Advice]:
    volume = job.read_bytes + job.written_bytes
    if job.files is not None and job.files >= MANY_FILES and volume / job.files < SMALL_FILE:
        yield Advice(
            "small files",
            job.files / MANY_FILES,
            1.0,
            f"{job.files:,.0f} files with {volume / job.files / KIB:.3g} KiB each",
            "Put them into few large files: HDF5, NetCDF, or a tar archive read by offset",
        )


RULES: tuple[Callable[[Footprint], Iterator[Advice]], ...] = (
    *(
        _shared_file,
        _single_process,
        _small_requests,
        _metadata,
        _amplification,
        _stripes,
        _re_reads,
        _small_files,
    ),
)
