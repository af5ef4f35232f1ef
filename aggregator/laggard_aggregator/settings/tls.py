"""TLS of what the aggregator itself serves: the HTTP interface and the embedded broker."""

import ssl
from pathlib import Path


def serving(cert_file: Path, key_file: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or newer with that certificate; the key may stand in `cert_file`. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert_file, key_file, password=lambda: "")  # no passphrase is asked on a terminal
    return context


def unusable(exc: OSError) -> str:
    """Why a certificate, key or list is not usable, in words for a message about it."""
    return f"not usable: {exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror}"
