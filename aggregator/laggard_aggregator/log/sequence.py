"""The one order of batches and window closes."""


class Ordinals:
    """Numbers from 1 on. `last` is the one given out last; a restart goes on from where it was."""

    def __init__(self) -> None:
        self.last = 0

    def __iter__(self) -> "Ordinals":
        return self

    def __next__(self) -> int:
        self.last += 1
        return self.last
