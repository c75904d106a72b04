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


class _NoDenials(logging.Filter):
    """uvicorn logs an error for each refused handshake, with the query string in it; refusals are counted in metrics instead."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return "WebSocket" not in message and "connection rejected" not in message


def configure(level: str, stream: TextIO | None = None) -> None:
    """Log to `stream` (stderr by default) from now on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(_NoDenials())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
