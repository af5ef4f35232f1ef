"""Formats figures for operators; unknown values are a dash."""

import math
from datetime import UTC, datetime

from laggard_aggregator.alarms.factors import DIFFERENT
from laggard_aggregator.detect import OTHER_SIDE, OWN_PAST

DASH = "–"
MAX_NAME_CHARS = 160
ALIKE_RATIO = 1.05
"""Nearer to its peers than this, a component is called neither slower nor faster."""
GRADES = {"severe": 5.0, "serious": 2.0, "moderate": 1.5, "slight": 0.0}
"""The grades of a straggler with their least factor; `severe` is the default of mails that go at once."""
WIDE_RATIO = 1.3
"""Below this factor a component that is not anomalous is called like its peers."""


def factor(severity: float) -> str:
    """Times slower than the peers: `4.2×`."""
    if not math.isfinite(severity):
        return DASH
    return f"{severity:,.0f}×" if severity >= 9.95 else f"{severity:.1f}×"


def at_times(share: float, severity: float, stops: str = "") -> str:
    """A duty cycle in words, `3.0× in 33 % of the time`, unless its share is 0, and `stops`, if any."""
    cycle = f"{factor(severity)} in {100 * share:.0f} % of the time" if share else ""
    return "; ".join(part for part in (cycle, stops) if part)


def grade(severity: float) -> str:
    """The grade of a factor, one of GRADES; `moderate` where it is unknown."""
    return next((name for name, least in GRADES.items() if severity >= least), "moderate")


def figure(value: float | None, unit: str = "") -> str:
    """A value with its unit, to three figures."""
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def score(value: float) -> str:
    """A detector's score to two places; 1 is the threshold, and 0 no sign of slowness, or less than none."""
    return f"{max(value, 0.0):.2f}" if math.isfinite(value) else DASH


def size(count: float | None) -> str:
    """Bytes, to three figures."""
    if count is None or not math.isfinite(count):
        return DASH
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def rate(per_second: float | None) -> str:
    """Bytes a second, to three figures."""
    return DASH if per_second is None or not math.isfinite(per_second) else f"{size(per_second)}/s"


def within(value: float | None, error: float | None, unit: str) -> str:
    """A value and by how much it may differ: `800 ± 13 MB/s`; `or more` without."""
    if value is None or not math.isfinite(value):
        return DASH
    if error is None or not math.isfinite(error):
        return f"{figure(value, unit)} or more"
    if error < 10.0 ** (math.floor(math.log10(abs(value))) - 2 if value else 0):  # of the third figure
        return figure(value, unit)
    return f"{figure(value)} ± {figure(error) if error >= 1000 else f'{error:.2g}'} {unit}"


def rate_within(per_second: float | None, error: float | None) -> str:
    """Bytes a second and by how much they may differ, as `within`."""
    if per_second is None or not math.isfinite(per_second):
        return DASH
    unit, scale = "B", 1.0
    for larger in ("kB", "MB", "GB", "TB"):
        if per_second < 1000 * scale:
            break
        unit, scale = larger, 1000 * scale
    return within(per_second / scale, None if error is None else error / scale, f"{unit}/s")


def took(seconds: float | None) -> str:
    """The time of a request, or a sum of such times, to three figures: `4.79 ms`, `12 s`, `3 h 5 min`."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds >= 120:
        return lasting(seconds)
    return figure(seconds, "s") if seconds >= 1 else figure(1e3 * seconds, "ms")


def moment(at: float) -> str:
    """A time as `2026-01-31 12:00:05`, UTC."""
    return _datetime(at).strftime("%Y-%m-%d %H:%M:%S") if _is_time(at) else DASH


def offset(seconds: float) -> str:
    """How far a clock is ahead of this one, to the millisecond: `+3 ms`, `-12 s`."""
    if not math.isfinite(seconds):
        return DASH
    return f"{seconds:+.3g} s" if abs(seconds) >= 1 else f"{round(1e3 * seconds):+d} ms".replace("+0 ", "0 ")


def clock(at: float) -> str:
    """A time of the day as `12:00`, UTC, with seconds where it has some."""
    return _datetime(at).strftime("%H:%M:%S").removesuffix(":00") if _is_time(at) else DASH


def time_of_day(at: float) -> str:
    """A time of the day as `12:00:00`, UTC."""
    return moment(at)[11:] if _is_time(at) else DASH


def day_and_clock(at: float) -> str:
    """A time as `01-31 12:00`, UTC."""
    return _datetime(at).strftime("%m-%d %H:%M") if _is_time(at) else DASH


def or_null(value: float) -> float | None:
    """A number of a JSON record: None where it is not finite."""
    return value if math.isfinite(value) else None


def or_zero(value: float) -> float:
    """A number to sort by: 0 where it is not finite."""
    return value if math.isfinite(value) else 0.0


def iso(at: float) -> str:
    """A time in ISO 8601, empty when invalid."""
    return _datetime(at).strftime("%Y-%m-%dT%H:%M:%SZ") if _is_time(at) else ""


def lasting(seconds: float) -> str:
    """A duration in its two largest units: `3 h 5 min`."""
    if not math.isfinite(seconds):
        return DASH
    left = max(round(seconds), 0)
    if left < 120:
        return f"{left} s"
    days, left = divmod(left, 86_400)
    hours, left = divmod(left, 3_600)
    parts = [(days, "d"), (hours, "h"), (left // 60, "min")]
    while parts and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)


def ago(at: float, now: float) -> str:
    """The age of a time."""
    return f"{lasting(now - at)} ago" if _is_time(at) else DASH


def sentence(text: str) -> str:
    """`text` with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def counted(count: int, singular: str, many: str = "") -> str:
    """`1 node`, `1,200 nodes`."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def plain(text: str, most: int = MAX_NAME_CHARS) -> str:
    """`text` on one line of at most `most` printable characters."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def spaced(text: str) -> str:
    """`text` with no-break spaces, which pages use between figure and unit, replaced by spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def minute(at: float) -> str:
    """A time to the minute, UTC."""
    return f"{moment(at)[:16]} UTC"


def zoned(at: float, local: bool = False) -> str:
    """A time with its zone: `2026-01-31 12:00:05 UTC`, or in this machine's zone."""
    if not _is_time(at):
        return DASH
    moment_ = _datetime(at).astimezone() if local else _datetime(at)
    return moment_.strftime("%Y-%m-%d %H:%M:%S %Z")


def claim(severity: float, worse: int = 1) -> str:
    """`is slower than`, `is faster than` or `behaves unlike`, of a component and its peers.

    `worse`: side of the metric; with 0 neither side is slower.
    """
    if worse == 0 or not severity > 0 or 1 / ALIKE_RATIO < severity < ALIKE_RATIO:
        return "behaves unlike"
    return "is slower than" if severity > 1 else "is faster than"


def led_by_average(now: float, average: float) -> bool:
    """True where the factor of the latest window is unknown, or as its peers' while the average is not."""
    return not math.isfinite(now) or (now < ALIKE_RATIO <= average)


def other_factor(now: float, average: float) -> str:
    """The average of the factors where it differs, as `4.3x on average`, else empty.

    Where `led_by_average`: the factor now, as `1.0x now`.
    """
    if led_by_average(now, average):
        return f"{factor(now)} now" if math.isfinite(now) else ""
    differs = math.isfinite(average) and abs(now - average) > DIFFERENT * average
    return f"{factor(average)} on average" if differs else ""


def worst_average(now: float, average: float, worst: float) -> str:
    """The largest average as `up to 6.8x on average`, empty where it is no more than the factors now."""
    known = [value for value in (now, average) if math.isfinite(value)]
    exceeds = math.isfinite(worst) and worst > (1 + DIFFERENT) * max(known, default=0.0)
    return f"up to {factor(worst)} on average" if exceeds else ""


def slower(
    now: float, worse: int = 1, against: str = "peers", average: float = math.nan, *, span: str = ""
) -> str:
    """The predicate of a sentence about a component with an alarm; `worse` as in `claim`.

    `now`: its factor in the latest window, `average`: that over the windows of the evidence. `against`: name
    of its reference, as in `registry.Detector`. `span`: `for 40 min` or `since ...`; then in the perfect.
    """
    leads = led_by_average(now, average)
    severity = average if leads else now
    other = other_factor(now, average).replace("\N{MULTIPLICATION SIGN}", " times")
    rest = (" on average" if leads and other else "") + (span and f" {span}") + (other and f", {other}")
    is_ = "has been" if span else "is"
    if against != "peers":
        far = f"{factor(severity).rstrip('×')} times " if math.isfinite(severity) else ""
        if against == OWN_PAST:
            return f"{is_} {far}slower than in its {against}{rest}"
        if against == OTHER_SIDE:
            return f"{is_} {far}slower than the rest of its group{rest}"
        return f"{'has stayed' if span else 'stays'} {far}below its {against}{rest}"
    said = claim(severity, worse)
    times = severity if severity > 1 else 1 / severity if severity > 0 else math.nan
    if said == "behaves unlike" or not math.isfinite(times):
        return f"{'has behaved unlike' if span else said} its peers" + (span and f" {span}")
    return f"{is_} {factor(times).rstrip('×')} times {said.split()[1]} than its peers{rest}"


def _is_time(at: float) -> bool:
    return math.isfinite(at) and 0 < at < 253_402_300_800  # before the year 10000


def _datetime(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
