"""Calls and self times of instrumented functions, from the tables that liblaggardtrace.so keeps."""
