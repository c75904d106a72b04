"""`stretto check`: settings, voice tables, limits of a load, and pasted vLLM lines. Starts no engine and opens no port for long."""

from __future__ import annotations

from gateway.check.command import Finding, add_arguments, examine, run

__all__ = ["Finding", "add_arguments", "examine", "run"]
