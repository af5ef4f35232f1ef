"""A TOML file as one frozen dataclass, with every problem of the file reported together.

The dataclass is the whole description: a nested dataclass is a table, `tuple[Dataclass, ...]` an array of
tables, a field without a default is required. Checks stand in the field's metadata:

    port: int = field(default=1883, metadata=checked(tcp_port()))

A dataclass may have a method `problems(self) -> Iterable[tuple[str, str]]` (key, message) for rules between
fields; it is called only when the table's own fields are valid. A class variable
`REMOVED: ClassVar[Mapping[str, str]]` maps keys of earlier versions to their error messages.
"""

import difflib
import functools
import ipaddress
import math
import operator
import re
import sys
import tomllib
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from laggard_common.errors import ConfigError
from laggard_common.wire.topics import is_level

T = TypeVar("T")
Check = Callable[[Any], str | None]  # error message for a value of the right type, or None

_CHECKS = "laggard.checks"
_TABLES = "laggard.tables"
_NAMES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    Path: "a path",
    dict: "a table",
}
_hints = functools.cache(get_type_hints)


def checked(*checks: Check) -> Mapping[str, tuple[Check, ...]]:
    """Metadata for a dataclass field; the checks run in order up to the first that finds something."""
    return {_CHECKS: checks}


def further_tables(
    names: Callable[[], Collection[str]], type_of: Callable[[str], type], *, skip_empty: bool = False
) -> Mapping[str, Any]:
    """Metadata for a field that holds the tables in `names()`, by name, each parsed as `type_of(name)`.

    `skip_empty`: an empty table is left out, as `type_of` may be expensive.
    """
    return {_TABLES: (names, type_of, skip_empty)}


def between(low: float, high: float = math.inf) -> Check:
    """Accepts numbers from `low` to `high`, both included."""
    expected = f"at least {low}" if high == math.inf else f"{low}-{high}"
    return lambda value: None if low <= value <= high else f"expected {expected}, got {value}"


def above(low: float) -> Check:
    """Accepts numbers greater than `low`."""
    return lambda value: None if value > low else f"expected more than {low}, got {value}"


def tcp_port() -> Check:
    """Accepts TCP port numbers."""
    return between(1, 65535)


def host_name() -> Check:
    """Accepts a valid host name or address, which need not exist."""

    def check(value: str) -> str | None:
        try:
            right = bool(value.encode("idna")) and value.isprintable() and " " not in value
        except UnicodeError:  # also from the resolver: an empty or overlong label
            right = False
        return None if right else f"expected a host name or an address, got {_shown(value)}"

    return check


def is_loopback(host: str) -> bool:
    """True when `host` names only this machine, without a look-up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def one_of(choices: Collection[str]) -> Check:
    """Accepts one of `choices`."""
    listed = ", ".join(choices)
    return lambda value: None if value in choices else f"expected one of {listed}, got {value!r}"


def non_empty() -> Check:
    """Accepts non-empty strings and arrays."""
    return lambda value: None if value else "must not be empty"


def regex(value: str) -> str | None:
    """Accepts strings that compile as a regular expression."""
    try:
        re.compile(value)
    except re.error as exc:
        return f"not a regular expression: {exc}: {value!r}"
    return None


def network(value: str) -> str | None:
    """Accepts IP networks such as 10.1.0.0/16 and fd00::/8; a single address is a network, too."""
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return f"expected a network such as 10.1.0.0/16, no bits behind the prefix, got {_shown(value)}"
    return None


def topic_level() -> Check:
    """Accepts names that can be a level of an MQTT topic."""
    expected = "expected letters, digits and . _ : - (at most 128)"
    return lambda value: None if is_level(value) else f"{expected}, got {value!r}"


def each(check: Check) -> Check:
    """Accepts arrays every item of which `check` accepts."""
    return lambda values: next((wrong for value in values if (wrong := check(value))), None)


def distinct() -> Check:
    """Accepts arrays in which nothing repeats."""
    return lambda values: None if len(set(values)) == len(values) else f"must not repeat, got {list(values)}"


def load(cls: type[T], path: Path) -> T:
    """Loads the TOML file at `path`. Raises ConfigError with all problems of the file."""
    return parse(cls, read(path), str(path))


def read(path: Path) -> dict[str, Any]:
    """The table in the TOML file at `path`. Raises ConfigError."""
    try:
        text = path.read_bytes().decode()
    except OSError as exc:
        raise ConfigError(str(path), [_os_problem(exc)]) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(str(path), [f"not UTF-8 at byte {exc.start}"]) from exc
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as exc:  # also: thousands of digits, or of brackets
        raise ConfigError(str(path), [f"not TOML: {exc}"]) from exc


def parse(cls: type[T], table: Mapping[str, Any], path: str = "") -> T:
    """Converts a parsed table; `path` is used in errors. Raises ConfigError."""
    problems: list[str] = []
    value = _table(cls, table, "", problems)
    if problems:
        raise ConfigError(path, problems)
    return value  # type: ignore[no-any-return]


def _os_problem(exc: OSError) -> str:
    if isinstance(exc, FileNotFoundError):
        return "no such file"
    if isinstance(exc, IsADirectoryError):
        return "is a directory, expected a file"
    return f"cannot be read: {exc.strerror or exc}"


def _table(cls: Any, table: Mapping[str, Any], prefix: str, problems: list[str]) -> Any:
    further = next((field for field in fields(cls) if _TABLES in field.metadata), None)
    known = {field.name: field for field in fields(cls) if field is not further}
    names, type_of, skip_empty = further.metadata[_TABLES] if further else (tuple, type, False)
    possible = (*known, *names())
    hints = _hints(cls)
    before = len(problems)
    removed: Mapping[str, str] = getattr(cls, "REMOVED", {})
    for key in table:
        if key in removed:
            problems.append(f"{prefix}{key}: {removed[key]}")
        elif key not in possible:
            close = difflib.get_close_matches(key, possible, n=1)
            problems.append(f"{prefix}{key}: unknown key" + (f", did you mean {close[0]}?" if close else ""))
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in table:
            values[name] = _field(field, hints[name], table[name], prefix + name, problems)
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append(f"{prefix}{name}: missing, expected {_describe(hints[name])}")
    if further:
        values[further.name] = {
            name: _value(type_of(name), raw, prefix + name, problems)
            for name, raw in table.items()
            if name in possible and name not in known and not (skip_empty and raw == {})
        }
    if len(problems) > before:
        return None
    built = cls(**values)
    for key, wrong in built.problems() if hasattr(built, "problems") else ():
        problems.append(f"{prefix}{key}: {wrong}")
    return built


def _field(field: "Field[Any]", hint: Any, raw: Any, key: str, problems: list[str]) -> Any:
    before = len(problems)
    value = _value(hint, raw, key, problems)
    if len(problems) > before:
        return None
    for check in field.metadata.get(_CHECKS, ()):
        wrong = check(value)
        if wrong:
            problems.append(f"{key}: {wrong}")
            return None
    return value


def _value(hint: Any, raw: Any, key: str, problems: list[str]) -> Any:
    hint = _without_none(hint)
    if is_dataclass(hint):
        if isinstance(raw, dict):
            return _table(hint, raw, f"{key}.", problems)
    elif get_origin(hint) is tuple:
        if isinstance(raw, list):
            item = get_args(hint)[0]
            return tuple(_value(item, element, f"{key}[{i}]", problems) for i, element in enumerate(raw))
    elif hint is Path:
        if isinstance(raw, str) and raw and "\0" not in raw:
            return Path(raw)
    elif hint is float:
        if type(raw) in (int, float) and abs(raw) <= sys.float_info.max:
            return float(raw)
    elif type(raw) in (get_args(hint) or (hint,)):
        return raw
    problems.append(f"{key}: expected {_describe(hint)}, got {_shown(raw)}")
    return None


def _without_none(hint: Any) -> Any:
    """`hint` without `| None`: a type, or a union of several plain ones."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [arg for arg in get_args(hint) if arg is not type(None)]
        return functools.reduce(operator.or_, kinds)
    return hint


def _describe(hint: Any) -> str:
    hint = _without_none(hint)
    if isinstance(hint, types.UnionType):
        return " or ".join(_describe(option) for option in get_args(hint))
    if is_dataclass(hint):
        return "a table"
    if get_origin(hint) is tuple:
        return f"an array, each {_describe(get_args(hint)[0])}"
    return _NAMES[hint]


def _shown(raw: Any) -> str:
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, list):
        return "an array"
    text = repr(raw) if isinstance(raw, str) else str(raw)
    return text if len(text) <= 60 else text[:57] + "..."
