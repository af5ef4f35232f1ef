"""Parts of a long-running process: signals, service manager, logging, memory, locks."""
