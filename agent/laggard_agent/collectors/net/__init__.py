"""Network counters of the kernel: interfaces, TCP, packet processing, and TCP by destination."""
