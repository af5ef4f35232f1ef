"""Storage devices as queues, request by request, judged by `laggard diagnose` from their counters alone.

Its worth is its independence: it was written from queueing theory and the format of the counters by someone
who had not read the detector or the other generators, imports nothing of Laggard, and runs the command as a
user does. Keep it so: a change here follows from how devices behave, never from how the detector works.
"""
