"""A correction of amqtt 0.12: a new session receives only the retained messages of its own subscriptions.

amqtt sends a client that connects the retained messages of all clients' subscriptions, and fails when one of
them changes meanwhile.
"""

from amqtt.broker import Broker
from amqtt.session import Session


class PatchedBroker(Broker):  # type: ignore[misc]
    """amqtt's broker with the correction."""

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Returns without yielding to the loop for a subscription of other sessions."""
        if any(own.client_id == session.client_id for own, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)
