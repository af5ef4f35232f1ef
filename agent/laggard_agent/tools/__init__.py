"""One-shot commands of `laggard-agent`: `--once`, `--dump`, `--fold`."""
