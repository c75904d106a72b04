"""One gateway process: `gateway` holds its parts, `doors` lets clients in, `guard` stands before all doors, `lifecycle` serves."""

from __future__ import annotations

from gateway.server.gateway import Gateway
from gateway.server.lifecycle import serve, serve_in_workers

__all__ = ["Gateway", "serve", "serve_in_workers"]
