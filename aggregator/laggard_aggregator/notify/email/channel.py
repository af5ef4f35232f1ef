"""The mail channel: table `[mail]`."""

import asyncio

from laggard_aggregator.notify.channel import Channel, Delivery
from laggard_aggregator.notify.email.message import compose
from laggard_aggregator.notify.email.plot import drawn
from laggard_aggregator.notify.email.settings import MailSettings, access, bare
from laggard_aggregator.notify.email.smtp import deliver
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.settings.channels import register


@register
class MailChannel(Channel):
    """Mails with a plot of the worst component, by SMTP."""

    name = "mail"
    settings_class = MailSettings
    settings: MailSettings

    def __init__(self, settings: MailSettings) -> None:
        self.settings = settings
        self.destination = settings.address
        self.recipients = tuple(bare(each) for each in settings.recipients)
        self._access = access(settings)

    async def render(self, notification: Notification) -> bytes:
        """Draws the plot and composes the mail."""
        plot = await drawn(notification.reports[0]) if notification.reports else None
        return await asyncio.to_thread(compose, notification, self.settings, plot)

    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:
        """Sends a mail once."""
        return await deliver(self.settings, self._access, message, recipients)
