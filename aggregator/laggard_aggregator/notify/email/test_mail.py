"""`laggard-aggregator --test-mail`: one mail about a made-up component, by the way that all others go."""

import secrets

import numpy as np

from laggard_aggregator.detect.interface import FloatArray
from laggard_aggregator.notify.email.message import Writer
from laggard_aggregator.notify.email.plot import drawn
from laggard_aggregator.notify.email.settings import Access, MailSettings, spec
from laggard_aggregator.notify.email.smtp import connected
from laggard_aggregator.notify.incidents import Case
from laggard_aggregator.notify.report import Evidence, Report, live
from laggard_aggregator.notify.text import claim, moment
from laggard_aggregator.notify.timelines import Course
from laggard_aggregator.status import formatting
from laggard_aggregator.status.next_steps import commands
from laggard_common.errors import ServiceError

_WINDOWS, _LEFT_AT, _WINDOW_SECONDS = 120, 72, 450.0
_FACTOR = 4.1


async def send_trial(settings: MailSettings, access: Access, site: str, page: str, now: float) -> str:
    """Sends it to every recipient; says so in a line. Raises ServiceError unless all of them have it."""
    recipients = tuple(spec(each) for each in settings.recipients)
    try:
        async with connected(settings, access) as connection:
            report = sample(now, page)
            plot = await drawn(report)
            message = Writer(settings, site, page).trial(f"t.{secrets.token_hex(12)}", report, plot)
            result = await connection.deliver(message, recipients)
    except ServiceError as exc:
        raise ServiceError(f"{settings.address}: {exc}") from exc
    left = [f"{who}: {said}" for who, said in (*result.never.items(), *result.later.items())]
    if left:
        raise ServiceError(f"{settings.address} does not take mail for {'; '.join(left)}")
    without = "" if plot else ", without a plot"
    return f"sent to {', '.join(recipients)} through {settings.address}{without}"


def sample(now: float, page: str) -> Report:
    """A report on a disk that became slow about six hours before `now`."""
    end: FloatArray = np.asarray(now + (np.arange(_WINDOWS) - _WINDOWS + 1) * _WINDOW_SECONDS, np.float64)
    rng = np.random.default_rng(1)
    middle = 18.0 + 4.0 * np.sin(np.arange(_WINDOWS) / 14.0) + rng.normal(0.0, 0.5, _WINDOWS)
    slow = np.arange(_WINDOWS) >= _LEFT_AT
    own = middle * np.where(slow, _FACTOR, 1.04) * rng.normal(1.0, 0.05, _WINDOWS)
    since = float(end[_LEFT_AT] - _WINDOW_SECONDS)
    group, name = "storage/diskstats/made-up", "oss-made-up/sdx"
    case = Case(name, name, group, "component", "await", _FACTOR, since)
    seen = {
        "own": formatting.figure(float(own[-1]), "ms"),
        "peers": formatting.figure(float(middle[-1]), "ms"),
    }
    factor = formatting.factor(_FACTOR)
    return Report(
        case=case,
        name=name,
        kind="",
        severity=_FACTOR,
        claim=claim(_FACTOR),
        since=moment(since),
        lasted=formatting.lasting(now - since),
        group=group,
        peers=63,
        metric="await",
        unit="ms",
        evidence=(Evidence("await", group, **seen, factor=factor, worst=factor, since=moment(since)),),
        causes=(),
        commands=(*commands("diskstats", "component", name), live(page)),
        url=f"{page}/",
        course=Course(end, own, middle * 0.8, middle, middle * 1.25),
    )
