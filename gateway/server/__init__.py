"""One gateway process: `gateway` holds its parts, `doors` lets clients in, `guard` stands before all doors, `lifecycle` serves."""

from __future__ import annotations

from gateway.server.gateway import Gateway
from gateway.server.lifecycle import serve

__all__ = ["Gateway", "serve"]
