"""Bounds on everything that comes from the network. Both sides check them; docs/wire-format.md lists them."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_PAYLOAD_BYTES = 32 * 1024 * 1024  # a payload after decompression
MAX_EVENT_BYTES = 2 * 1024 * 1024  # the same, of kind events
MAX_VALUES = 4 * 1024 * 1024  # ticks x components x fields of one batch, idle ones included
MAX_TICKS = 4096
MAX_COMPONENTS = 16_384  # of one node and source
MAX_FIELDS = 1024
MAX_NAME_CHARS = 256
MAX_PATH_CHARS = 4096  # of a file in an I/O trace
MAX_LABELS = 16
STREAM_BYTES = 16
MIN_INTERVAL_NS = 1_000_000
MAX_INTERVAL_NS = 86_400 * 1_000_000_000
MAX_ACK_RANGES = 65_536
MAX_ACK_BYTES = 256 * 1024  # an acknowledgement, smaller than other messages: a node reads it
