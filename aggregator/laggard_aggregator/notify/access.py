"""Files that the settings of a channel name: secrets and certificate authorities.

Problems are appended as `key: path: reason`; none shows the content of a file.
"""

import ssl
from pathlib import Path

from laggard_aggregator.settings.tls import unusable
from laggard_common.secret_files import unfit

MAX_SECRET_BYTES = 16_384


def read_secret(key: str, path: Path | None, problems: list[str]) -> list[str]:
    """The lines of a secret file that not everyone may read, [] without one or with a problem."""
    if path is None:
        return []
    reason = unfit(path)
    if reason is None:
        try:
            with path.open("rb") as file:
                lines = file.read(MAX_SECRET_BYTES).decode().splitlines()
        except UnicodeDecodeError:
            reason = "not UTF-8"
        except OSError as exc:
            reason = exc.strerror or str(exc)
        else:
            if lines and lines[0]:
                return lines
            reason = "is empty"
    problems.append(f"{key}: {path}: {reason}")
    return []


def tls_client(key: str, ca_file: Path | None, problems: list[str]) -> ssl.SSLContext | None:
    """TLS 1.2 or newer, checked by certificate and name; `ca_file` None: the system's authorities."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as exc:
        problems.append(f"{key}: {ca_file}: {unusable(exc)}")
        return None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
