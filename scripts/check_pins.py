"""Say whether the installed packages satisfy a distribution's requirements: `check_pins.py NAME`.

`pip install --no-deps` asks nobody; this asks. Exits 1 and names every requirement that is missing or has a wrong version.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def faults(distribution: str) -> list[str]:
    """One line for each requirement (without extras) that the environment does not meet."""
    found: list[str] = []
    for line in requires(distribution) or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            got = version(requirement.name)
        except PackageNotFoundError:
            found.append(f"{requirement.name} is missing, {distribution} needs {requirement}")
            continue
        if not requirement.specifier.contains(got, prereleases=True):
            found.append(f"{requirement.name} is {got}, {distribution} needs {requirement.specifier}")
    return found


if __name__ == "__main__":
    wrong = faults(sys.argv[1])
    print("\n".join(wrong) or f"all requirements of {sys.argv[1]} are met")
    sys.exit(bool(wrong))
