"""Published detectors of slow storage devices beside Laggard's, each from its source, on the same series.

`series` has the input and output of all detectors, `scoring` counts right and wrong, one file holds each
method.
"""
