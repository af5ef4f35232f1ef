"""Options, and what is wrong with them in one line."""

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong with the options in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")
