"""Methods by which components slow within a job are found; imports nothing."""

from typing import Final

LAGGARD: Final = "laggard"
BELOW_PEAK: Final = "below_peak"
BELOW_PEERS: Final = "below_peers"
METHODS: Final = (LAGGARD, BELOW_PEAK, BELOW_PEERS)
