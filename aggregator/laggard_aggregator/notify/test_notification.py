"""`laggard-aggregator --test-<channel>`: one notification about a made-up component, sent like any other."""

import secrets

import numpy as np

from laggard_aggregator.notify.channel import Channel, UnavailableError
from laggard_aggregator.notify.incidents import Incident
from laggard_aggregator.notify.report import Comparison, IncidentReport, Notification, live_command
from laggard_aggregator.status.next_steps import commands
from laggard_common.errors import ServiceError

_WINDOWS, _SLOW_FROM, _WINDOW_SECONDS = 120, 72, 450.0
_FACTOR = 4.1


async def send_test(channel: Channel, site: str, page: str, now: float, needs_token: bool) -> str:
    """Sends it to all recipients; returns a line that says so. Raises ServiceError unless all have it."""
    notification = Notification(
        f"t.{secrets.token_hex(12)}", "test", site, page, reports=(sample(now, page, needs_token),)
    )
    try:
        delivery = await channel.send(await channel.render(notification), channel.recipients)
    except UnavailableError as exc:
        raise ServiceError(f"{channel.destination}: {exc}") from exc
    failed = [f"{who}: {reason}" for who, reason in (*delivery.refused.items(), *delivery.retry.items())]
    if failed:
        raise ServiceError(f"{channel.destination} does not take the message for {'; '.join(failed)}")
    return f"sent to {', '.join(channel.recipients)} through {channel.destination}"


def sample(now: float, page: str, needs_token: bool) -> IncidentReport:
    """A report about a disk that became slow about six hours before `now`."""
    end = now + (np.arange(_WINDOWS) - _WINDOWS + 1) * _WINDOW_SECONDS
    rng = np.random.default_rng(1)
    median = 18.0 + 4.0 * np.sin(np.arange(_WINDOWS) / 14.0) + rng.normal(0.0, 0.5, _WINDOWS)
    slow = np.arange(_WINDOWS) >= _SLOW_FROM
    own = median * np.where(slow, _FACTOR, 1.04) * rng.normal(1.0, 0.05, _WINDOWS)
    since = float(end[_SLOW_FROM] - _WINDOW_SECONDS)
    group, name = "storage/diskstats/made-up", "oss-made-up/sdx"
    observed, reference = float(own[-1]), float(median[-1])
    return IncidentReport(
        incident=Incident(name, name, group, "component", "await", _FACTOR, since),
        at=now,
        url=f"{page}/",
        peers=63,
        comparisons=(Comparison("await", group, "ms", observed, reference, _FACTOR, _FACTOR, since),),
        commands=(*commands("diskstats", "component", name), live_command(page, needs_token)),
        timeline=np.stack([end, own, median * 0.8, median, median * 1.25], axis=1),
    )
