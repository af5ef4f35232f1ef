"""Sizes of the generated site and the constants of its hardware."""

from dataclasses import dataclass

MIB = 1 << 20
START_SECONDS = 1_795_132_800
"""2026-11-20T00:00:00Z, the first second of the site."""
FS = "scratch"
OPERATIONS = ("open", "close", "getattr")
OPERATION_SHARES = (0.25, 0.25, 0.5)
"""Of a metadata phase."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One site. A lane is half a forwarder: `nodes_per_lane` nodes that one job has at a time.

    `repeats`: slow runs injected of each kind. `wave_seconds`: each lane begins one run a wave. `cycles`: of
    a run, scaled with `wave_seconds`. Windows of the daemon are judged by its default settings.
    """

    forwarders: int = 6
    nodes_per_lane: int = 4
    logins: int = 2
    servers: int = 4
    targets_per_server: int = 3
    mdts: int = 2
    warm_up_waves: int = 7
    wave_seconds: int = 1300
    repeats: int = 3
    interval_seconds: int = 5
    batch_seconds: int = 60

    @property
    def nodes(self) -> int:
        """Compute nodes."""
        return self.forwarders * 2 * self.nodes_per_lane

    @property
    def osts(self) -> int:
        """OSTs."""
        return self.servers * self.targets_per_server


SHAPES = {
    "tiny": Shape(warm_up_waves=1, wave_seconds=1300, repeats=0),
    "quick": Shape(),
    "full": Shape(
        forwarders=16,
        nodes_per_lane=16,
        logins=4,
        servers=16,
        wave_seconds=9000,
        interval_seconds=15,
        batch_seconds=300,
    ),
}


@dataclass(frozen=True, slots=True)
class Hardware:
    """Service times in seconds, and how many requests a station serves at once."""

    think: float = 0.002
    """Of a compute node, for each request of data."""
    think_metadata: float = 0.0002
    forwarder: float = 0.0007
    """Of a forwarder's own processing, for each request of data."""
    forwarder_metadata: float = 0.0002
    network: float = 0.0001
    """From forwarder to server."""
    forwarder_threads: int = 128
    """A thread is held until the server answers."""
    ost: float = 0.003
    """Of an OST for each request, besides its bytes."""
    ost_bytes_per_second: float = 350.0 * MIB
    ost_slots: int = 8
    mdt: float = 0.0003
    mdt_slots: int = 16
    lock: float = 0.0033
    """Of a shared file's extents, times the root of the number of its writers."""
    noise: float = 0.06
    """Standard deviation of the log of a service time."""


def hardware(shape: Shape) -> Hardware:
    """The constants of the quick site, with stations as large as its lanes."""
    scale = shape.nodes_per_lane / 4
    return Hardware(
        forwarder_threads=round(128 * scale), ost_slots=round(8 * scale), mdt_slots=round(16 * scale)
    )


def node_name(number: int) -> str:
    """Of a compute node."""
    return f"cn-{number + 1:04d}"


def forwarder_name(number: int) -> str:
    """Of a forwarder."""
    return f"fwd-{number + 1:02d}"


def login_name(number: int) -> str:
    """Of a login node."""
    return f"login-{number + 1}"


def ost_name(number: int) -> str:
    """Of an OST."""
    return f"{FS}-OST{number:04x}"


def mdt_name(number: int) -> str:
    """Of an MDT."""
    return f"{FS}-MDT{number:04x}"
