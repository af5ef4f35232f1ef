"""One-shot commands of `laggard-agent`: `--once`, `--dump`, `--fold`."""


def seconds(ns: int) -> str:
    """Nanoseconds as seconds, from integers: a float would lose the last digits."""
    whole, rest_ns = divmod(ns, 10**9)
    return f"{whole}.{rest_ns:09d}"
