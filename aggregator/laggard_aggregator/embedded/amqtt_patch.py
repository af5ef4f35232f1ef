"""amqtt, which gives retained messages to those alone who subscribed to them.

It would send whoever connects all that others subscribed to: the more nodes come back, the more to each. And
a subscription that is made meanwhile ends the connection, as it goes through all of them.
"""

from amqtt.broker import Broker
from amqtt.session import Session


class RetainingBroker(Broker):  # type: ignore[misc]
    """Lets a session have what is retained under its own subscriptions."""

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Without a turn of the event loop where there is nothing to do."""
        if any(own.client_id == session.client_id for own, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)
