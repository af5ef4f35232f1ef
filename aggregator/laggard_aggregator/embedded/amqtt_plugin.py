"""The rules as amqtt's plugin. A client's id is the name in its certificate: the door sees to that."""

from collections import defaultdict

from amqtt.contexts import Action, BaseContext
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session

from laggard_aggregator.embedded.acl import is_aggregator, may_publish, may_receive, may_subscribe

MAX_TOPICS = 256
"""To which one client may write: each may keep a retained message."""


class NodeRules(BaseAuthPlugin, BaseTopicPlugin):  # type: ignore[misc]
    """Lets each client do what its name may."""

    def __init__(self, context: BaseContext) -> None:
        super().__init__(context)
        self._topics: defaultdict[str, set[str]] = defaultdict(set)

    async def authenticate(self, *, session: Session) -> bool:
        """Whether the last will is one that may be published, as amqtt asks nobody when it publishes it."""
        name = session.client_id or ""
        return not session.will_flag or self._may_publish(name, session.will_topic or "")

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        """Whether the client may do that with the topic."""
        name, topic = (session.client_id if session else None) or "", topic or ""
        if action == Action.PUBLISH:
            return self._may_publish(name, topic)
        return may_subscribe(name, topic) if action == Action.SUBSCRIBE else may_receive(name, topic)

    def _may_publish(self, name: str, topic: str) -> bool:
        if not may_publish(name, topic):
            return False
        if is_aggregator(name):  # nothing retained: an acknowledgement is for now
            return True
        known = self._topics[name]
        if len(known) < MAX_TOPICS:
            known.add(topic)
        return topic in known
