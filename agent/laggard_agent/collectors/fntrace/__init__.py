"""Calls and self times of instrumented functions, from the tables of liblaggardtrace.so."""
