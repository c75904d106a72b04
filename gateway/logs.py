"""One JSON line per fact: a constant message, the values as fields, never content."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_STANDARD |= {"vllm_process_name"}  # vLLM puts it on every record of the process


class JsonLines(logging.Formatter):
    """`extra` fields become keys; a trace becomes one string."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        fields: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update({name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None})
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


_OF_PEERS = (
    "WebSocket",
    "connection rejected",
    "ASGI callable returned without completing handshake",  # so it calls every handshake that we answered with a status
    "Invalid UTF-8 sequence received",
    "Invalid HTTP request received",
)


class _NoPeers(logging.Filter):
    """What strangers do is no fault of ours: uvicorn logs an error for each refused handshake, with the query string in it.

    Refusals are counted in metrics instead.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not any(words in message for words in _OF_PEERS)


def configure(level: str, stream: TextIO | None = None) -> None:
    """Log to `stream` (stderr by default) from now on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(_NoPeers())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
