"""Optional extras, and which packages come with each."""

from collections.abc import Iterator
from contextlib import contextmanager

from laggard_common.errors import MissingPackageError

EXTRAS = {
    "amqtt": "broker",
    **dict.fromkeys(("cffi", "darshan", "duckdb", "h5py"), "mining"),
    **dict.fromkeys(("py4j", "pyspark"), "spark"),
}
"""The extra that brings a package; others come with `aggregator`."""


@contextmanager
def missing_extra_named() -> Iterator[None]:
    """Raises MissingPackageError where an import of the block lacks a package of an extra."""
    try:
        yield
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        if not package or package.startswith("laggard_"):
            raise
        raise MissingPackageError(package, EXTRAS.get(package, "aggregator")) from exc
