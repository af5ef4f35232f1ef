"""The webhook channel: table `[webhook]`."""

from http import HTTPStatus

from laggard_aggregator.notify.channel import Channel, Delivery, UnavailableError
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.notify.webhook.http_post import post
from laggard_aggregator.notify.webhook.settings import WebhookSettings, endpoint
from laggard_aggregator.notify.webhook.templates import rendered
from laggard_aggregator.settings.channels import register

_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_RETRIED = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}
_UNAVAILABLE = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}


@register
class WebhookChannel(Channel):
    """POST of each notification to one address."""

    name = "webhook"
    settings_class = WebhookSettings
    settings: WebhookSettings

    def __init__(self, settings: WebhookSettings) -> None:
        self.settings = settings
        self._endpoint = endpoint(settings)
        self.destination = self._endpoint.origin
        self.recipients = (self.name,)

    async def render(self, notification: Notification) -> bytes:
        """Renders the template."""
        return rendered(self.settings.template, notification)

    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:
        """Posts a message once. 429 and 503 hold up all messages, other refusals this one.

        408, 425 and 5xx are refusals for now; any other status but 2xx, redirects among them, is for good.
        """
        status, retry_after_seconds = await post(self._endpoint, message, self.settings.timeout_seconds)
        if 200 <= status < 300:
            return Delivery()
        reason = f"HTTP {status} {_PHRASES.get(status, '')}".rstrip()
        if status < 400:
            reason += ", redirects are not followed"
        if status in _UNAVAILABLE:
            raise UnavailableError(reason, retry_after_seconds)
        refused = dict.fromkeys(recipients, reason)
        if status in _RETRIED or status >= 500:
            return Delivery(retry=refused, retry_after_seconds=retry_after_seconds)
        return Delivery(refused=refused)
