"""`laggard-aggregator --credential NAME`: a line for `http.credentials_file`."""

import getpass
import sys

from laggard_aggregator.web.auth import new_token, password_line
from laggard_common.errors import ConfigError

LEAST_PASSWORD_CHARS = 8
_MOST_PASSWORD_CHARS = 512


def print_credential(name: str, *, token: bool) -> int:
    """Prints the line, and a token to standard error. Raises ConfigError for invalid input."""
    try:
        if token:
            secret, line = new_token(name)
            print(f"token of {name}, not to be seen again: {secret}", file=sys.stderr)
        else:
            line = password_line(name, _password())
    except ValueError as exc:
        raise ConfigError("", [f"--credential: {exc}"]) from exc
    print(line)
    return 0


def _password() -> str:
    if not sys.stdin.isatty():
        return _long_enough(sys.stdin.readline(_MOST_PASSWORD_CHARS + 2).rstrip("\r\n"))
    password = _long_enough(getpass.getpass("password: "))
    if getpass.getpass("once more: ") != password:
        raise ValueError("the two passwords differ")
    return password


def _long_enough(password: str) -> str:
    if not LEAST_PASSWORD_CHARS <= len(password) <= _MOST_PASSWORD_CHARS:
        raise ValueError(f"a password has {LEAST_PASSWORD_CHARS} to {_MOST_PASSWORD_CHARS} characters")
    return password
