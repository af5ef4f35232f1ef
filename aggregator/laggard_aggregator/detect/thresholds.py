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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from laggard_aggregator.detect.registry import FUNCTION_DETECTORS
from laggard_aggregator.detect.settings import BinLimitMode, DetectSettings
from laggard_aggregator.files.atomic_write import written
from laggard_common.errors import ConfigError

MAX_BIN_LIMIT = 32_767

ByMetric = Mapping[str, Mapping[str, float]]
"""Thresholds of one group: by metric, then by component, in the detector's own unit."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What training found. It holds for its detector's version, and for windows like those of the training.

    `trained`: ISO 8601 UTC. `sources`: names of the inputs. `groups`: thresholds by group; `functions`: by
    group, what `manhattan` was trained with (`DetectSettings.functions`).
    """

    detector: str
    version: int
    trained: str
    sources: Sequence[str]
    interval_seconds: float
    window_samples: int
    bin_limit: int
    bin_limit_mode: BinLimitMode
    groups: Mapping[str, ByMetric]
    functions: Mapping[str, ByMetric] = field(default_factory=dict)

    def applied(self, settings: DetectSettings, group: str) -> DetectSettings:
        """`settings` with the thresholds of `group`, or all of them where it was not trained by its name."""
        return replace(
            settings,
            bin_limit=self.bin_limit,
            bin_limit_mode=self.bin_limit_mode,
            thresholds=self.groups.get(group) or _merged(self.groups),
            functions=self.functions.get(group) or _merged(self.functions),
        )

    def mismatches(self, settings: DetectSettings, version: int) -> list[str]:
        """In what respects these are not for `settings` and this detector version; empty when they are."""
        pairs = (
            ("detector", self.detector, settings.detector),
            ("version", self.version, version),
            ("interval_seconds", self.interval_seconds, settings.interval_seconds),
            ("window_samples", self.window_samples, settings.window_samples),
        )
        return [
            f"{name}: trained with {own}, to be used with {other}"
            for name, own, other in pairs
            if own != other
        ]


def _merged(groups: Mapping[str, ByMetric]) -> ByMetric:
    merged: dict[str, dict[str, float]] = {}
    for by_metric in groups.values():
        for metric, by_component in by_metric.items():
            merged.setdefault(metric, {}).update(by_component)
    return merged


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
    if t.detector not in FUNCTION_DETECTORS:
        lines += [f"bin_limit = {t.bin_limit}", f"bin_limit_mode = {_quoted(t.bin_limit_mode)}"]
    for table, groups in (("thresholds", t.groups), ("functions", t.functions)):
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
    default = DetectSettings()
    return Thresholds(
        detector=table["detector"],
        version=table["version"],
        trained=table["trained"],
        sources=tuple(table["sources"]),
        interval_seconds=float(table["interval_seconds"]),
        window_samples=table["window_samples"],
        bin_limit=table.get("bin_limit", default.bin_limit),
        bin_limit_mode=table.get("bin_limit_mode", default.bin_limit_mode),
        groups=_floats(table["thresholds"]),
        functions=_floats(table.get("functions", {})),
    )


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
    if table.get("detector") in FUNCTION_DETECTORS:
        expected["functions"] = ("a table", (dict,))
    else:
        expected |= {"bin_limit": ("an integer", (int,)), "bin_limit_mode": ("a string", (str,))}
    found = [(key, "unknown key") for key in table if key not in expected]
    for key, (what, types) in expected.items():
        value = table.get(key)
        if not isinstance(value, types) or isinstance(value, bool):
            found.append((key, f"missing, expected {what}" if key not in table else f"expected {what}"))
    if not found and not 1 <= table.get("bin_limit", 1) <= MAX_BIN_LIMIT:
        found.append(("bin_limit", f"expected 1-{MAX_BIN_LIMIT}, got {table['bin_limit']}"))
    if not found and table.get("bin_limit_mode", "clip") not in get_args(BinLimitMode):
        found.append(("bin_limit_mode", f"expected widen or clip, got {table['bin_limit_mode']!r}"))
    found += _not_numbers("thresholds", table.get("thresholds"), "0 or more", lambda value: value >= 0)
    found += _not_numbers("functions", table.get("functions"), "more than 0", lambda value: value > 0)
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
