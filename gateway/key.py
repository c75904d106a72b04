"""`stretto key`: a new key for a client, and the hash of it that the settings keep."""

from __future__ import annotations

import argparse
import secrets
import sys

from gateway.auth import hashed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `stretto key`."""
    parser.add_argument("--hash", action="store_true", help="read a key from standard input and print its hash alone")


def run(options: argparse.Namespace) -> int:
    """Print both, one a line; 256 random bits need no slow hash."""
    if options.hash:
        key = sys.stdin.readline().strip()
        if not key:
            print("no key on standard input", file=sys.stderr)
            return 2
        print(hashed(key))
        return 0
    key = secrets.token_urlsafe(32)
    print(f"key   {key}\nhash  {hashed(key)}")
    print("Give the key to the client; put the hash into server.keys, STRETTO_KEYS or keys.NAME.key.", file=sys.stderr)
    return 0
