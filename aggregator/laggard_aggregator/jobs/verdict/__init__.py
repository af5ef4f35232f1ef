"""Verdicts on jobs. METHODS find components that are slow within a job."""

from typing import Final

LAGGARD: Final = "laggard"
BELOW_PEAK: Final = "below_peak"
BELOW_PEERS: Final = "below_peers"
METHODS: Final = (LAGGARD, BELOW_PEAK, BELOW_PEERS)
