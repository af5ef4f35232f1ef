"""libdarshan-util from the `darshan` wheel, without that package's own imports.

`import darshan` imports pandas, which takes longer than to read a log of thousands of files. Only its text
of C declarations and its search for the library are used here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from laggard_common.errors import MissingPackageError, ServiceError


class _PandasBlocker(MetaPathFinder):
    """Refuses to import pandas."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raises ModuleNotFoundError for pandas; other finders have all other modules."""
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Keeps pyarrow from importing pandas where it is installed: nothing here uses it."""
    blocker = _PandasBlocker()
    sys.meta_path.insert(0, blocker)
    try:
        yield
    finally:
        sys.meta_path.remove(blocker)


@cache
def library() -> tuple[Any, Any]:
    """The `cffi` interface and the library. Raises ServiceError where it is not installed."""
    spec = find_spec("darshan")
    if spec is None or spec.submodule_search_locations is None:
        raise MissingPackageError("darshan", "mining")
    try:
        import cffi
    except ImportError as exc:
        raise ServiceError(f"the darshan package cannot be used: {exc}") from exc
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "darshan"}
    package = ModuleType("darshan")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules.update({"darshan": package})
    try:
        declarations = import_module("darshan.backend.api_def_c").load_darshan_header()
        discover = import_module("darshan.discover_darshan")
        interface = cffi.FFI()
        interface.cdef(declarations)
        return interface, discover.find_utils(interface, None)
    except (AttributeError, ImportError, OSError, RuntimeError, cffi.CDefError) as exc:
        raise ServiceError(f"this version of the darshan package cannot be used: {exc}") from exc
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "darshan"]:
            del sys.modules[name]
        sys.modules.update(before)


def counter_names(interface: Any, library: Any, module: str, *, times: bool = False) -> list[str]:
    """Names of a module's counters, or of its times, as the library has them, without the module's prefix."""
    prefix = module.replace("-", "")
    middle = "F_" if times else ""
    names = getattr(library, f"{prefix.lower()}_{middle.lower()}counter_names")
    result: list[str] = []
    while (name := interface.string(names[len(result)]).decode("ascii")) != f"{prefix}_{middle}NUM_INDICES":
        result.append(name.partition("_")[2])
    return result
