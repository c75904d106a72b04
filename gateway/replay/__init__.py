"""`stretto replay`: a kept conversation as it went, and once more against a gateway. `tape` reads, `story` tells, `again` re-sends."""

from __future__ import annotations

from gateway.replay.command import add_arguments, run

__all__ = ["add_arguments", "run"]
