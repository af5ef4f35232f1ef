"""The product's source as trees: what the tests of layout, prose and names look at."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "laggard_common": ROOT / "common" / "laggard_common",
    "laggard_agent": ROOT / "agent" / "laggard_agent",
    "laggard_aggregator": ROOT / "aggregator" / "laggard_aggregator",
}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file: the package it belongs to, and where it is in it."""

    package: str
    path: Path

    @property
    def parts(self) -> tuple[str, ...]:
        """The path below the package."""
        return self.path.relative_to(PACKAGES[self.package]).parts

    @property
    def room(self) -> str:
        """The folder at the package's top, or the module there."""
        return self.parts[0] if len(self.parts) > 1 else self.path.stem

    @property
    def name(self) -> str:
        """The path from the project's root."""
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        """The file's text."""
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """The file's syntax tree."""
        return ast.parse(self.text)

    def imported(self) -> Iterator[str]:
        """The dotted names that it imports; of `from a import b` that is `a.b`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def docstrings(self) -> Iterator[tuple[int, str, bool]]:
        """Line, text, and whether it is the module's."""
        for node in ast.walk(self.tree):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                yield getattr(node, "lineno", 1), text, isinstance(node, ast.Module)

    def texts(self) -> Iterator[tuple[int, str]]:
        """Line and text of every string and every comment."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string

    def classes(self) -> Iterator[ast.ClassDef]:
        """All classes, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))


@cache
def sources() -> tuple[Source, ...]:
    """All files of the product."""
    return tuple(
        Source(package, path) for package, base in PACKAGES.items() for path in sorted(base.rglob("*.py"))
    )
