"""Certificates for thousands of nodes from the site's authority, in seconds: all with one key."""

import ssl
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


class NodeCertificates:
    """Certificates of `names`, signed by the authority that `deploy/pki/laggard-ca` made in `folder`."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._folder = folder
        self._key = folder / "nodes.key"
        self._public = folder / "nodes.pub"
        self._out = folder / "nodes"
        self._out.mkdir()
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(self._key))
        _openssl("pkey", "-in", str(self._key), "-pubout", "-out", str(self._public))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._sign, names))

    def context(self, name: str) -> ssl.SSLContext:
        """What a node of that name connects with."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.load_verify_locations(self._folder / "ca.pem")
        made.load_cert_chain(self._out / f"{name}.pem", self._key)
        return made

    def _sign(self, name: str) -> None:
        ca = ["-CA", str(self._folder / "ca.pem"), "-CAkey", str(self._folder / "ca.key")]
        config = ["-extfile", str(self._folder / "openssl.cnf"), "-extensions", "client", "-days", "2"]
        subject = ["-subj", f"/CN={name}", "-force_pubkey", str(self._public)]
        _openssl("x509", "-new", *subject, *ca, *config, "-out", str(self._out / f"{name}.pem"))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
