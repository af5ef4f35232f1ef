"""The HotDep paper's detector: distances between vectors over functions against trained thresholds."""

from laggard_aggregator.detect.settings import TrainingOption

TRAINING_OPTIONS = (
    TrainingOption(
        "divided",
        "manhattan: divide the sums of each function by its spread over healthy servers",
        default=False,
        kept=False,
    ),
)
