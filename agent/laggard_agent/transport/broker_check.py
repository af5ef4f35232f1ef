"""Asks the broker why messages may not arrive: a short connection of its own with MQTT 5, which has reasons.

A message is published that costs the aggregator nothing: a batch of an unknown stream, which it does not keep
but answers with a request for the schema. So an answer shows that messages arrive.
"""

import os
import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from laggard_agent.settings import AgentSettings
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.wire import topics
from laggard_common.wire.limits import MAX_MESSAGE_BYTES, STREAM_BYTES

SOURCE = "agent_check"
_SECONDS = 5.0
_NOT_AUTHORIZED, _NO_SUBSCRIBERS, _TOO_LARGE = 0x87, 0x10, 0x95
_REFUSED = 0x80
_MAY_FILL_BYTES = 64


class Question(Enum):
    """Questions to the broker and the aggregator, in this order."""

    CONNECTION = "connection"
    PACKET_SIZE = "largest packet"
    SUBSCRIPTION = "subscription to acknowledgements"
    PUBLISH = "publishing"
    AGGREGATOR = "aggregator"


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The answer to a question, and whether it is as it should be."""

    question: Question
    is_good: bool
    text: str


def check_broker(settings: AgentSettings, arguments: ClientArguments, size: int) -> list[BrokerAnswer]:
    """Asks all questions, with a message of `size` bytes; blocks up to twenty seconds. Never raises."""
    check = _Check(settings, arguments, size)
    try:
        check.run()
    except (OSError, ValueError, RuntimeError) as exc:
        check.add(Question.CONNECTION, good=False, text=str(exc) or type(exc).__name__)
    finally:
        check.close()
    return check.findings


def explain(findings: list[BrokerAnswer], size: int) -> str:
    """The first finding that is not as it should be, or where to look without one."""
    bad = next((finding for finding in findings if not finding.is_good), None)
    if bad is not None:
        return f"{bad.question.value}: {bad.text}"
    return (
        f"is an aggregator running with this site in its topics? If so, look in the broker's log for an ACL"
        f" that denies this node's topics or a limit below packets of {size} bytes"
    )


class _Check:
    """One connection. Callbacks come from paho's thread."""

    def __init__(self, settings: AgentSettings, arguments: ClientArguments, size: int) -> None:
        s = self._settings = settings
        self.findings: list[BrokerAnswer] = []
        self._arguments = arguments
        self._size = min(size, MAX_MESSAGE_BYTES)
        self._stream = os.urandom(STREAM_BYTES)
        self._answers: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"laggard-check-{s.node}@{s.site}",
            protocol=paho.MQTTv5,
        )
        self._client.on_connect = lambda _, __, ___, code, properties: self._answer(
            "connected", code, properties
        )
        self._client.on_connect_fail = lambda _, __: self._answer("connected", None, None)
        self._client.on_disconnect = lambda _, __, ___, code, ____: self._answer("lost", code)
        self._client.on_subscribe = lambda _, __, ___, codes, ____: self._answer("subscribed", codes)
        self._client.on_publish = lambda _, __, ___, code, ____: self._answer("published", code)
        self._client.on_message = lambda _, __, message: self._on_message(bytes(message.payload))

    def run(self) -> None:
        """Makes the checks in order, until one makes the rest pointless."""
        s, arguments, client = self._settings, self._arguments, self._client
        if arguments["username"]:
            client.username_pw_set(arguments["username"], arguments["password"])
        if arguments["tls_context"] is not None:
            client.tls_set_context(arguments["tls_context"])
        client.connect(arguments["hostname"], arguments["port"], keepalive=30)
        client.loop_start()
        code, properties = self._wait("connected") or (None, None)
        if code is None or code.is_failure:
            reason = "no answer" if code is None else f"{code}"
            self.add(Question.CONNECTION, good=False, text=f"{s.mqtt.address}: {reason}")
            return
        self.add(Question.CONNECTION, good=True, text=f"connected to {s.mqtt.address}")
        most = getattr(properties, "MaximumPacketSize", None)
        if most is not None and most < self._size + _MAY_FILL_BYTES:
            text = f"the broker takes {most} bytes, this node sends {self._size}: raise its max_packet_size"
            self.add(Question.PACKET_SIZE, good=False, text=text)
            return
        self.add(Question.PACKET_SIZE, good=True, text="no limit" if most is None else f"{most} bytes")
        self._subscribe()
        self._publish()

    def _subscribe(self) -> None:
        topic = topics.ack_topic(self._settings.site, self._settings.node)
        self._client.subscribe(topic, qos=1)
        (codes,) = self._wait("subscribed") or ((),)
        if not codes:
            self.add(Question.SUBSCRIPTION, good=False, text="no answer")
        elif codes[0].value >= _REFUSED:
            self.add(Question.SUBSCRIPTION, good=False, text=f"the broker's ACL denies {topic}: {codes[0]}")
        else:
            self.add(Question.SUBSCRIPTION, good=True, text=f"granted ({topic})")

    def _publish(self) -> None:
        s = self._settings
        topic = topics.data_topic(s.site, s.role, s.node, SOURCE)
        envelope = wire.Envelope(
            kind=wire.Kind.COUNTERS,
            node=s.node,
            source=SOURCE,
            stream=self._stream,
            seq=0,
            schema_epoch=1,
            t0_ns=time.time_ns(),
            dt_ns=s.interval_ns,
            n=1,
            codec=0,
            payload=bytes(max(self._size - len(topic) - 2 * _MAY_FILL_BYTES, 8)),
        )
        self._client.publish(topic, wire.encode_envelope(envelope), qos=1)
        (code,) = self._wait("published") or (None,)
        if code is None:
            text = f"no answer to {self._size} bytes on {topic}"
            if "lost" in self._answers:
                reason = self._answers["lost"][0]
                text = (
                    f"the broker closed the connection ({reason}) on {self._size} bytes on {topic}:"
                    f" are they too large for it (mosquitto: message_size_limit)?"
                )
            self.add(Question.PUBLISH, good=False, text=text)
            return
        if code.value >= _REFUSED:
            why = {_NOT_AUTHORIZED: "the broker's ACL denies", _TOO_LARGE: "too large for the broker:"}
            reason = f"{why.get(code.value, 'the broker refuses')} {self._size} bytes on {topic}: {code}"
            self.add(Question.PUBLISH, good=False, text=reason)
            return
        self.add(Question.PUBLISH, good=True, text=f"{self._size} bytes on {topic}")
        if code.value == _NO_SUBSCRIBERS:
            text = f"nobody subscribes to {topic}: no aggregator is connected, or its topics are others"
            self.add(Question.AGGREGATOR, good=False, text=text)
        elif self._wait("answered") is None:
            text = f"no answer to a message on {topic}: does the aggregator run, and may it write the answer?"
            self.add(Question.AGGREGATOR, good=False, text=text)
        else:
            self.add(Question.AGGREGATOR, good=True, text="answers")

    def add(self, question: Question, *, good: bool, text: str) -> None:
        """Notes an answer."""
        self.findings.append(BrokerAnswer(question, good, text))

    def close(self) -> None:
        """Ends the connection and its thread."""
        self._client.disconnect()
        self._client.loop_stop()

    def _on_message(self, payload: bytes) -> None:
        try:
            acks = wire.decode_ack(payload)
        except WireError:
            return
        if any(ack.stream == self._stream for ack in acks):
            self._answer("answered")

    def _answer(self, what: str, *values: Any) -> None:
        with self._changed:
            self._answers.setdefault(what, values)
            self._changed.notify_all()

    def _wait(self, what: str) -> Any:
        """The values of an answer; None after five seconds, or when the connection is lost."""
        with self._changed:
            self._changed.wait_for(lambda: what in self._answers or "lost" in self._answers, _SECONDS)
            return self._answers.get(what)
