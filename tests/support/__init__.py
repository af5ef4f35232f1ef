"""Support for the tests: waiting, processes, ports, clocks, peers and builders of test data."""
