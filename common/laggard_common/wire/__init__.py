"""The wire format: messages as bytes; docs/wire-format.md is the contract."""

from laggard_common.wire.envelope import (
    OLDEST_VERSION,
    VERSION,
    Ack,
    Envelope,
    Kind,
    decode_ack,
    decode_envelope,
    decode_schema,
    decode_state,
    encode_ack,
    encode_envelope,
    encode_schema,
    encode_state,
    join_payload,
    schema_head,
    split_joined,
)

__all__ = [
    "OLDEST_VERSION",
    "VERSION",
    "Ack",
    "Envelope",
    "Kind",
    "decode_ack",
    "decode_envelope",
    "decode_schema",
    "decode_state",
    "encode_ack",
    "encode_envelope",
    "encode_schema",
    "encode_state",
    "join_payload",
    "schema_head",
    "split_joined",
]
