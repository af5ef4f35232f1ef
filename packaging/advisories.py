"""Known advisories about the pinned dependencies: `make advisories`.

`python packaging/advisories.py AUDIT.json`, with the report of `pip-audit --format json` over
`requirements.txt`: prints each advisory, and writes `advisories.json`: the day, the packages looked up, and
the advisories of each. Exit status 1 with an advisory that is not in `accepted` of that file (there with a
reason), 2 where a package was not looked up, as without a network: nothing is written then.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("advisories.json")
PINNED = Path(__file__).with_name("requirements.txt")


def pinned() -> dict[str, set[str]]:
    """The versions of each package in `requirements.txt`."""
    found: dict[str, set[str]] = {}
    for line in PINNED.read_text().splitlines():
        name, is_pin, rest = line.partition("==")
        if is_pin and not line.startswith((" ", "#")):
            found.setdefault(name, set()).add(rest.split()[0])
    return found


def looked_up(report: dict[str, Any]) -> dict[str, list[str]]:
    """Advisories by `name==version`, of the packages that were looked up."""
    return {
        f"{each['name']}=={each['version']}": sorted(str(one["id"]) for one in each["vulns"])
        for each in report["dependencies"]
        if "skip_reason" not in each
    }


def main() -> int:
    """Takes over the report that the command line names."""
    found = looked_up(json.loads(Path(sys.argv[1]).read_text()))
    missing = sorted(pinned().keys() - {name.partition("==")[0] for name in found})
    if missing:
        print(f"not looked up: {', '.join(missing)}", file=sys.stderr)
        return 2
    accepted = json.loads(KEPT.read_text())["accepted"] if KEPT.exists() else {}
    told = {"looked_up": f"{datetime.now(UTC):%Y-%m-%d}", "accepted": accepted, "packages": found}
    KEPT.write_text(json.dumps(told, indent=1) + "\n")
    new = [f"{name}: {one}" for name, ids in found.items() for one in ids if one not in accepted]
    print("\n".join(new) or f"no advisory about {len(found)} packages")
    return bool(new)


if __name__ == "__main__":
    sys.exit(main())
