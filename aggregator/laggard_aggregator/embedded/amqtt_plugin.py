"""The access rules of `acl` as an amqtt plugin; a client id is the CN that the connection guard has set."""

from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session

from laggard_aggregator.embedded.acl import may_publish, may_receive, may_subscribe

_RULES = {Action.PUBLISH: may_publish, Action.SUBSCRIBE: may_subscribe, Action.RECEIVE: may_receive}


class AclPlugin(BaseAuthPlugin, BaseTopicPlugin):  # type: ignore[misc]
    """Allows each client the topics of its name."""

    async def authenticate(self, *, session: Session) -> bool:
        """Whether the client may publish its last will; amqtt does not ask again when it publishes it."""
        return not session.will_flag or may_publish(session.client_id or "", session.will_topic or "")

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        """Whether the client may publish to, subscribe to, or receive from `topic`."""
        name = (session.client_id if session else None) or ""
        return action is not None and _RULES[action](name, topic or "")
