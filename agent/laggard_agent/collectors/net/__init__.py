"""The network as the kernel counts it: interfaces, TCP, packet processing, and TCP by destination."""
