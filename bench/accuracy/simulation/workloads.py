"""What the clients do. Rates follow from the closed loop; sizes and times say where they come from."""

from dataclasses import dataclass

MIB = 2**20
SEQUENTIAL_BYTES_PER_S = 70e6
"""A 7200 rpm disk of the HotDep paper's time, outer to middle tracks."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Every client in turn asks for one part of `part_bytes` from each of `stripe` LUNs, waits for the
    slowest, and thinks for `think_ms` (with the coefficient of variation `think_cv`) before the next
    record.

    A part occupies its LUN for `position_ms` and its bytes at `SEQUENTIAL_BYTES_PER_S`, writes
    `write_factor` times as long; `service_cv` is the variation from part to part. `requests`: block
    requests a part is cut into. `new_file`: how often a record belongs to a new file, which starts on
    another LUN. `uneven`: spread (log) of the LUNs' popularity. `bursty`: idle phases and bursts instead of
    a steady load.
    """

    name: str
    read_share: float
    part_bytes: float
    requests: int
    stripe: int
    position_ms: float
    think_ms: float
    service_cv: float = 0.35
    think_cv: float = 0.35
    write_factor: float = 1.5
    new_file: float = 0.0
    uneven: float = 0.0
    bursty: bool = False
    rewrite_factor: float = 1.0

    def service_seconds(self, read: bool) -> float:
        """Mean time that a part occupies a healthy LUN."""
        seconds = self.position_ms / 1000 + self.part_bytes / SEQUENTIAL_BYTES_PER_S
        return seconds if read else seconds * self.write_factor


def _dd(name: str, read_share: float, think_ms: float) -> Workload:
    """Records of 40 MB, 4 MB a server (HotDep, "Configurations of Workloads")."""
    return Workload(name, read_share, 4 * MIB, requests=8, stripe=10, position_ms=12.0, think_ms=think_ms)


def _iozone(name: str, read_share: float, think_ms: float, rewrite_factor: float = 1.0) -> Workload:
    """Records of 16 MB, 1.6 MB a server; halfway through, the same file is read or written again."""
    return Workload(
        name,
        read_share,
        1.6 * MIB,
        requests=4,
        stripe=10,
        position_ms=8.0,
        think_ms=think_ms,
        rewrite_factor=rewrite_factor,
    )


WORKLOADS = {
    workload.name: workload
    for workload in (
        _dd("ddr", read_share=1.0, think_ms=480.0),
        _dd("ddw", read_share=0.0, think_ms=750.0),
        _iozone("iozoner", read_share=1.0, think_ms=225.0),
        _iozone("iozonew", read_share=0.0, think_ms=340.0, rewrite_factor=0.9),
        # One transaction: a few metadata updates and a small file on one server.
        Workload(
            "postmark",
            read_share=0.3,
            part_bytes=20 * 1024,
            requests=4,
            stripe=1,
            position_ms=15.0,
            think_ms=18.0,
            service_cv=0.7,
            think_cv=0.7,
            write_factor=1.15,
            new_file=1.0,
            uneven=0.15,
        ),
        # Checkpoints, restarts and analysis of many jobs, each file striped over four LUNs.
        Workload(
            "hpc",
            read_share=0.35,
            part_bytes=16 * MIB,
            requests=16,
            stripe=4,
            position_ms=15.0,
            think_ms=700.0,
            service_cv=0.4,
            think_cv=0.7,
            write_factor=1.2,
            new_file=0.2,
            uneven=0.05,
            bursty=True,
        ),
    )
}
