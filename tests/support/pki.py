"""Certificates of a test's own authority, issued by the shipped script."""

import shutil
import ssl
from pathlib import Path

import pytest

from tests.support.processes import run_command

_SCRIPT = Path(__file__).parents[2] / "deploy" / "pki" / "laggard-ca"


def issued(folder: Path) -> Path:
    """`folder` with an authority (`ca.pem`) and a certificate for 127.0.0.1. Skips without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    for arguments in (("init", str(folder)), ("broker", str(folder), "127.0.0.1")):
        run_command([_SCRIPT, *arguments])
    return folder


def of_server(folder: Path) -> ssl.SSLContext:
    """The server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        folder / "issued" / "laggard-broker.pem", folder / "issued" / "laggard-broker.key"
    )
    return context
