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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from laggard_aggregator.detect import registry
from laggard_aggregator.detect.settings import DEFAULT_TRAINED, ByMetric
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.files.atomic_write import written
from laggard_common import config
from laggard_common.errors import ConfigError

_OWN: Mapping[str, Any] = {
    "detector": str,
    "version": int,
    "trained": str,
    "sources": tuple[str, ...],
    "interval_seconds": float,
    "window_samples": int,
}
"""Keys of every file, each a field of Thresholds, and their types."""


def save(path: Path, thresholds: Thresholds) -> None:
    """Writes the file, whole or not at all. Raises InputError when it cannot be written."""
    t = thresholds
    lines = [
        "# Thresholds of `laggard train`. Larger is more tolerant; a component without one is not judged."
    ]
    own = {name: getattr(t, name) for name in _OWN}
    lines += [f"{name} = {_value(value)}" for name, value in (own | dict(t.options)).items()]
    for table, groups in (("thresholds", t.groups), *t.tables.items()):
        for group, metrics in groups.items():
            for metric, components in metrics.items():
                lines += ["", f"[{table}.{_value(group)}.{_value(metric)}]"]
                lines += [f"{_value(name)} = {float(value)!r}" for name, value in components.items()]
    with written(path) as file:
        file.write("\n".join(lines) + "\n")


def load(path: Path) -> Thresholds:
    """The thresholds in the file at `path`. Raises ConfigError with everything that is wrong with it."""
    table = config.read(path)
    detector = table.get("detector")
    name = detector if detector in registry.trainable() else DEFAULT_TRAINED
    training = registry.training_of(name)
    wrong = list(_not_numbers("thresholds", table.get("thresholds"), "0 or more", lambda value: value >= 0))
    for key in training.tables:
        wrong += _not_numbers(key, table.get(key), "more than 0", lambda value: value > 0)
    try:
        file = config.parse(_file_class(name), table)
    except ConfigError as exc:
        raise ConfigError(str(path), [*exc.problems, *wrong]) from exc
    if wrong:
        raise ConfigError(str(path), wrong)
    return Thresholds(
        **{key: getattr(file, key) for key in _OWN},
        groups=_floats(file.thresholds),
        options={option.name: getattr(file, option.name) for option in training.kept},
        tables={key: _floats(getattr(file, key)) for key in training.tables},
    )


@cache
def _file_class(detector: str) -> type[Any]:
    """The dataclass of a thresholds file of that detector."""
    training = registry.training_of(detector)
    options = [
        (option.name, str if option.choices else int, field(metadata=config.checked(option.problem)))
        for option in training.kept
    ]
    tables = [(name, dict) for name in ("thresholds", *training.tables)]
    return make_dataclass("ThresholdsFile", [*_OWN.items(), *options, *tables])


def _floats(groups: Mapping[str, Any]) -> dict[str, ByMetric]:
    return {
        group: {
            metric: {name: float(v) for name, v in components.items()} for metric, components in by.items()
        }
        for group, by in groups.items()
    }


def _not_numbers(key: str, by_group: Any, what: str, good: Callable[[float], bool]) -> Iterator[str]:
    """Problems of a table by group, metric and name."""
    for group, metrics in by_group.items() if isinstance(by_group, dict) else ():
        for metric, by_name in metrics.items() if isinstance(metrics, dict) else [("", None)]:
            if not isinstance(by_name, dict):
                yield f"{key}.{group}.{metric}".rstrip(".") + ": expected a table"
                continue
            for name, value in by_name.items():
                if type(value) not in (int, float) or not (value < math.inf and good(value)):
                    yield f"{key}.{group}.{metric}.{name}: expected a number of {what}, got {value!r}"


def _value(value: Any) -> str:
    """A TOML value: JSON's, but for DEL in strings."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
