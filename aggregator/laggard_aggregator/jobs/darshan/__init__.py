"""Darshan, Slurm and LMT in one store; critical files; why a job's I/O was slow (docs/mining.md)."""

from typing import Any

__all__ = ["Mine"]


def __getattr__(name: str) -> Any:
    """`Mine`, imported on use: the reader of logs needs no engine."""
    if name == "Mine":
        from laggard_aggregator.jobs.darshan.miner import Mine

        return Mine
    raise AttributeError(name)
