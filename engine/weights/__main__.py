"""`python -m engine.weights [NAME ...]`: fetch models into the cache folder before the first start, or mend them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from engine.api import EngineSetupError
from engine.weights.download import megabytes
from engine.weights.store import fetch
from engine.weights.table import TABLE


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.weights", description=__doc__)
    known = "; ".join(f"{w.name}: {w.about}, {megabytes(w.download_bytes)} to download ({w.license})" for w in TABLE.values())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of them. {known}")
    parser.add_argument("--cache", type=Path, default=Path(os.environ.get("STRETTO_CACHE_DIR", "~/.cache/stretto")).expanduser())
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in TABLE]
    if unknown:
        parser.error(f"got {', '.join(unknown)}, expected one of {', '.join(TABLE)}")
    try:
        for name in arguments.names or TABLE:
            print(fetch(TABLE[name], arguments.cache, _tell), flush=True)
    except EngineSetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
