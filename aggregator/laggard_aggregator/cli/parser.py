"""Argument parser with one-line errors."""

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Prints errors as one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")
