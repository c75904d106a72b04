"""The `stretto` command. The commands are imported inside: Ctrl-C while they load ends without a word, as at any other moment."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status (0 fine, 1 failed, 2 wrong use or settings)."""
    try:
        from gateway.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
