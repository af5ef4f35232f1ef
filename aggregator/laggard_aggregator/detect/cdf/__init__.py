"""The Intrepid paper's detector: distances between cumulative histograms against trained thresholds."""
