"""Persistence, stragglers and alarms from verdicts, and the overrides of operators.

`judge.Judge` raises and clears alarms: at a window, and when it forgets a component. `alarms.Persistence`
decides when a component is a straggler and when it is healthy again. `alarms.AlarmBook` has the standing
alarms.
"""
