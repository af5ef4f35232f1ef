"""Trained thresholds in a TOML file that people can read, compare and edit.

```toml
detector = "cdf"
version = 1
trained = "2026-01-31T00:00:00Z"
sources = ["host_1.csv.xz"]
interval_seconds = 15.0
window_samples = 60
bin_limit = 1000
bin_limit_mode = "widen"

[thresholds."luns"."await"]
"oss-1/sda" = 12.5
```

Those of `manhattan` have, in place of the two lines on bins, the functions that they hold for, and what each
one's sums are divided by:

```toml
[thresholds."storage/fnprofile"."samples"]
"oss-1" = 5200.0

[functions."storage/fnprofile"."samples"]
"glusterfsd/libc.so.6/memcpy" = 1.0
```
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from laggard_aggregator.detect import registry
from laggard_aggregator.detect.registry import DEFAULT_TRAINED, Training
from laggard_aggregator.detect.settings import ByMetric
from laggard_aggregator.detect.thresholds import Thresholds
from laggard_aggregator.files.atomic_write import written
from laggard_common.errors import ConfigError


def save(path: Path, thresholds: Thresholds) -> None:
    """Writes the file, whole or not at all. Raises InputError when it cannot be written."""
    t = thresholds
    lines = [
        "# Thresholds of `laggard train`. Larger is more tolerant; a component without one is not judged.",
        f"detector = {_quoted(t.detector)}",
        f"version = {t.version}",
        f"trained = {_quoted(t.trained)}",
        f"sources = [{', '.join(map(_quoted, t.sources))}]",
        f"interval_seconds = {t.interval_seconds!r}",
        f"window_samples = {t.window_samples}",
    ]
    lines += [f"{name} = {_value(value)}" for name, value in t.options.items()]
    for table, groups in (("thresholds", t.groups), *t.tables.items()):
        for group, metrics in groups.items():
            for metric, components in metrics.items():
                lines += ["", f"[{table}.{_quoted(group)}.{_quoted(metric)}]"]
                lines += [f"{_quoted(name)} = {float(value)!r}" for name, value in components.items()]
    with written(path) as file:
        file.write("\n".join(lines) + "\n")


def load(path: Path) -> Thresholds:
    """The thresholds in the file at `path`. Raises ConfigError with everything that is wrong with it."""
    try:
        table = tomllib.loads(path.read_bytes().decode())
    except OSError as exc:
        raise ConfigError(str(path), [f"cannot be read: {exc.strerror or exc}"]) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(str(path), [f"not UTF-8 at byte {exc.start}"]) from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(str(path), [f"not TOML: {exc}"]) from exc
    problems = [f"{key}: {wrong}" for key, wrong in _problems(table)]
    if problems:
        raise ConfigError(str(path), problems)
    training = _training_of(table)
    return Thresholds(
        detector=table["detector"],
        version=table["version"],
        trained=table["trained"],
        sources=tuple(table["sources"]),
        interval_seconds=float(table["interval_seconds"]),
        window_samples=table["window_samples"],
        groups=_floats(table["thresholds"]),
        options={option.name: table[option.name] for option in training.kept},
        tables={name: _floats(table[name]) for name in training.tables},
    )


def _training_of(table: Mapping[str, Any]) -> Training:
    """The training of the file's detector; of the default one, for an unknown detector."""
    name = table.get("detector")
    training = registry.find(name if name in registry.trainable() else DEFAULT_TRAINED).training
    assert training is not None
    return training


def _floats(groups: Mapping[str, Any]) -> dict[str, ByMetric]:
    return {
        group: {
            metric: {name: float(v) for name, v in components.items()} for metric, components in by.items()
        }
        for group, by in groups.items()
    }


def _problems(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    expected: dict[str, tuple[str, tuple[type, ...]]] = {
        "detector": ("a string", (str,)),
        "version": ("an integer", (int,)),
        "trained": ("a string", (str,)),
        "sources": ("an array", (list,)),
        "interval_seconds": ("a number", (int, float)),
        "window_samples": ("an integer", (int,)),
        "thresholds": ("a table", (dict,)),
    }
    training = _training_of(table)
    expected |= dict.fromkeys(training.tables, ("a table", (dict,)))
    for option in training.kept:
        expected[option.name] = ("a string", (str,)) if option.choices else ("an integer", (int,))
    found = [(key, "unknown key") for key in table if key not in expected]
    for key, (what, types) in expected.items():
        value = table.get(key)
        if not isinstance(value, types) or isinstance(value, bool):
            found.append((key, f"missing, expected {what}" if key not in table else f"expected {what}"))
    for option in () if found else training.kept:
        wrong = option.problem(table[option.name])
        found += [(option.name, wrong)] if wrong else []
    found += _not_numbers("thresholds", table.get("thresholds"), "0 or more", lambda value: value >= 0)
    for name in training.tables:
        found += _not_numbers(name, table.get(name), "more than 0", lambda value: value > 0)
    return found


def _not_numbers(
    key: str, by_group: Any, what: str, good: Callable[[float], bool]
) -> Iterator[tuple[str, str]]:
    """What is wrong in a table by group, metric and name."""
    for group, metrics in by_group.items() if isinstance(by_group, dict) else ():
        for metric, by_name in metrics.items() if isinstance(metrics, dict) else [("", None)]:
            if not isinstance(by_name, dict):
                yield f"{key}.{group}.{metric}".rstrip("."), "expected a table"
                continue
            for name, value in by_name.items():
                if type(value) not in (int, float) or not (value < math.inf and good(value)):
                    yield f"{key}.{group}.{metric}.{name}", f"expected a number of {what}, got {value!r}"


def _quoted(text: str) -> str:
    """A TOML basic string, which is JSON's but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: int | str) -> str:
    return _quoted(value) if isinstance(value, str) else str(value)
