"""Print the packages that Stretto with some extras asks for, one a line: `python3 wanted.py llamacpp,local-tts`. Reads ./pyproject.toml.

With it the image's dependencies are a layer of their own; `pip install .` would need the sources first.
"""

import sys
import tomllib
from pathlib import Path


def wanted(project: dict, extras: list[str]) -> list[str]:
    """The requirements. Raises `SystemExit` for an extra that does not exist."""
    known = project["optional-dependencies"]
    unknown = [extra for extra in extras if extra not in known]
    if unknown:
        raise SystemExit(f"got the extra {unknown[0]!r}; expected some of {', '.join(known)}")
    return [*project["dependencies"], *(package for extra in extras for package in known[extra])]


if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    print("\n".join(wanted(project, [extra for extra in sys.argv[1].split(",") if extra])))
