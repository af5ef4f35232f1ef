"""The relay to PagerDuty as a process, fed by the webhook's own template and client."""

import asyncio
import sys
from pathlib import Path

from laggard_aggregator.notify.channel import UnavailableError
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.notify.webhook.channel import post
from laggard_aggregator.notify.webhook.settings import WebhookSettings, endpoint
from laggard_aggregator.notify.webhook.templates import rendered
from tests.support.builders.notifications import raised, report, resolution, resolved
from tests.support.container import PROJECT
from tests.support.http_receiver import Receiver, answer, receiving
from tests.support.ports import free_port
from tests.support.processes import running
from tests.support.wait import LIMIT_SECONDS, time_limit

RELAY = PROJECT / "deploy/pagerduty/laggard-pagerduty"


async def sent(port: int, notification: Notification) -> int:
    """The relay's status for a notification, once it listens."""
    to = endpoint(WebhookSettings(url=f"http://127.0.0.1:{port}/"))
    async with time_limit():
        while True:
            try:
                return (await post(to, rendered("json", notification), LIMIT_SECONDS))[0]
            except UnavailableError:
                await asyncio.sleep(0.05)


async def relayed(folder: Path, pagerduty: Receiver) -> list[int]:
    """The relay's statuses for two alarms, the first not accepted by PagerDuty, and for their end."""
    (folder / "key").write_text("0123456789abcdef0123456789abcdef\n")
    port = free_port()
    url = f"http://127.0.0.1:{pagerduty.port}/v2/enqueue"
    with running([sys.executable, "-I", RELAY, folder / "key", port, url], folder / "relay.log"):
        both = raised("s.2", report("oss-1/sda", 7.5), report("oss-2/sdb", 1.4), count=2)
        ended = resolved("r.3", resolution(), resolves=("s.1", "s.2"))
        return [
            await sent(port, raised("s.1", report("oss-1/sdc", 1.4))),
            await sent(port, both),
            await sent(port, ended),
        ]


def test_notifications_become_events_and_refusals_come_back(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[int], Receiver]:
        async with receiving(Receiver()) as pagerduty:
            pagerduty.answers.append(answer(429))
            return await relayed(tmp_path, pagerduty), pagerduty

    statuses, pagerduty = asyncio.run(scenario())
    assert statuses == [502, 204, 204]
    refused, both, *ends = [request.json for request in pagerduty.requests]
    assert {request.line for request in pagerduty.requests} == {"POST /v2/enqueue HTTP/1.1"}
    assert {event["routing_key"] for event in (refused, both, *ends)} == {"0123456789abcdef0123456789abcdef"}
    assert (refused["event_action"], refused["dedup_key"]) == ("trigger", "s.1")
    assert refused["payload"]["severity"] == "warning"
    assert (both["dedup_key"], both["payload"]["severity"]) == ("s.2", "critical")
    assert set(both["payload"]["custom_details"]) == {"oss-1/sda", "oss-2/sdb"}
    assert [(event["event_action"], event["dedup_key"]) for event in ends] == [
        ("resolve", "s.1"),
        ("resolve", "s.2"),
    ]
