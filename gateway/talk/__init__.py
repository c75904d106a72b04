"""`stretto talk`: have a conversation with a running gateway from a terminal."""

from __future__ import annotations

from gateway.talk.command import add_arguments, run

__all__ = ["add_arguments", "run"]
