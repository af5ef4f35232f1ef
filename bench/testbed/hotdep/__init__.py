"""Faults on one of several I/O servers, found by what their functions do, as in the HotDep paper."""
