"""TLS of the aggregator's servers: HTTP and the embedded broker."""

import ssl
from pathlib import Path


def serving(cert_file: Path, key_file: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or newer with that certificate; the key may be in `cert_file`. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert_file, key_file, password=lambda: "")  # no prompt for a passphrase
    return context


def unusable(exc: OSError) -> str:
    """The reason why a certificate, key or list is unusable."""
    return f"not usable: {exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror}"
