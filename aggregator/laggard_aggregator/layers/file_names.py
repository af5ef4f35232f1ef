"""Names of one file in several traces: whole paths first, base names only where they are unambiguous."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class SameFiles:
    """Names paired with the names that another trace has for the same files.

    `ambiguous`: names that several files have; they are paired with none. `guessed`: pairs of
    different whole paths that have their base name alone in common.
    """

    matches: dict[str, str] = field(default_factory=dict)
    ambiguous: list[str] = field(default_factory=list)
    guessed: list[tuple[str, str]] = field(default_factory=list)

    def remarks(self) -> list[str]:
        """A sentence for each ambiguity and guess, at most eight of each."""
        said = [
            f"{name} may be any of several files of this name: it was matched with none of them"
            for name in self.ambiguous[:8]
        ]
        return said + [f"{a} and {b} were taken for one file" for a, b in self.guessed[:8]]


def same_files(names: Iterable[str], known: Iterable[str]) -> SameFiles:
    """Pairs each of `names` with the one of `known` that is the same file.

    Equal names are the same file. Otherwise one name must be the end of the other (`data.bin` and
    `/scratch/data.bin`), or have its base name, with one candidate on each side alone.
    """
    wanted, others = sorted(set(names)), sorted(set(known))
    outcome = SameFiles()
    exact = set(others)
    outcome.matches = {name: name for name in wanted if name in exact}
    left = [name for name in wanted if name not in exact]
    by_base: dict[str, list[str]] = defaultdict(list)
    of_base: dict[str, list[str]] = defaultdict(list)
    for name in others:
        by_base[base(name)].append(name)
    for name in left:
        of_base[base(name)].append(name)
    for key, mine in of_base.items():
        theirs = by_base.get(key, [])
        if not theirs:
            continue
        by_end = {name: [other for other in theirs if _is_end(name, other)] for name in mine}
        asked = Counter(candidate for candidates in by_end.values() for candidate in candidates)
        for name, candidates in by_end.items():
            if len(candidates) == 1 and asked[candidates[0]] == 1:
                outcome.matches[name] = candidates[0]
            elif not candidates and len(theirs) == len(mine) == 1 and theirs[0] not in outcome.matches:
                outcome.matches[name] = theirs[0]
                outcome.guessed.append((name, theirs[0]))
            else:
                outcome.ambiguous.append(name)
    return outcome


def base(path: str) -> str:
    """The last component of a path."""
    return path.rsplit("/", 1)[-1]


def _is_end(name: str, other: str) -> bool:
    a, b = name.removeprefix("./").split("/"), other.removeprefix("./").split("/")
    shorter, longer = sorted((a, b), key=len)
    return longer[-len(shorter) :] == shorter
