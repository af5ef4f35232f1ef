"""The Intrepid paper's detector: distances between cumulative histograms against trained thresholds."""

from typing import Literal, get_args

from laggard_aggregator.detect.settings import TrainingOption

BinLimitMode = Literal["widen", "clip"]
BIN_LIMIT = 1000
BIN_LIMIT_MODE: BinLimitMode = "widen"
TRAINING_OPTIONS = (
    TrainingOption("bin_limit", "most bins of a histogram of cdf", BIN_LIMIT, most=32_767),
    TrainingOption(
        "bin_limit_mode",
        "beyond the limit: wider bins, or the rest in the last one",
        BIN_LIMIT_MODE,
        choices=get_args(BinLimitMode),
    ),
)
