"""Write `docs/asyncapi.json`: the native protocol as an AsyncAPI 3 document, out of `gateway/events` and `gateway/errors`.

python scripts/asyncapi.py            writes the file
python scripts/asyncapi.py --check    ends with 1 when the file is not what the code says
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gateway import errors  # noqa: E402 - after the path of the checkout
from gateway.codecs.native import KEY_PREFIX, SUBPROTOCOL  # noqa: E402
from gateway.events import CLIENT_EVENTS, SERVER_EVENTS  # noqa: E402

RESUME = {"type": "string", "description": "The session that the connection comes back for: a full house lets it in."}
FILE = ROOT / "docs" / "asyncapi.json"
CLOSE_CODES = {
    1000: "the conversation is over (sent by the client: it ends the session; any other loss keeps it for a resume)",
    1003: "wrong frame kind: a text frame on this binary protocol",
    1008: "policy: no session.start in time, too many bad messages, a wrong resume token",
    1009: "a message larger than limits.message_bytes",
    1011: "a fault of the gateway",
    1013: "overloaded: try again after retry_after_ms",
    4001: "superseded: a newer connection resumed this session",
    4002: "idle: nothing came for limits.idle_s while nothing was said",
    4003: "slow reader: the client read or played slower than real time for too long",
    4004: "draining: the server stops; reconnect",
}


def document() -> dict[str, Any]:  # Any: JSON
    """The whole document."""
    kinds = [*CLIENT_EVENTS.values(), *SERVER_EVENTS.values()]  # `audio` goes both ways, so classes name the messages
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for name, schema in schemas.items():
        if "seq" not in schema.get("properties", {}) and any(kind.__name__ == name for kind in SERVER_EVENTS.values()):
            schema["properties"]["seq"] = {"type": "integer", "description": "From 1 in each session; absent before session.ready."}
    for name in ("AudioFrame", "AppendAudio"):
        schemas[name]["properties"]["data"] = {"type": "string", "format": "binary", "description": "msgpack `bin`."}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Stretto native protocol",
            "version": SUBPROTOCOL,
            "description": "One msgpack map per binary WebSocket frame; `data` of audio is `bin`. Absent keys are absent, not nil. "
            "Unknown keys are ignored. See protocol.md for the rules of order.",
            "license": {"name": "Apache-2.0"},
        },
        "servers": {"gateway": {"host": "localhost:8080", "protocol": "ws", "pathname": "/v1/voice"}},
        "channels": {
            "voice": {
                "address": "/v1/voice",
                "description": f"Subprotocol `{SUBPROTOCOL}`; a browser offers `{KEY_PREFIX}KEY` beside it.",
                "messages": {kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"} for kind in kinds},
                "bindings": {"ws": {"query": {"type": "object", "properties": {"resume": RESUME}}}},
                "x-close-codes": {str(code): text for code, text in CLOSE_CODES.items()},
            }
        },
        "operations": {
            "receiveFromClient": _operation("receive", CLIENT_EVENTS),
            "sendToClient": _operation("send", SERVER_EVENTS),
        },
        "components": {
            "messages": {
                kind.__name__: {
                    "name": kind.__struct_config__.tag,
                    "contentType": "application/msgpack",
                    "summary": inspect.getdoc(kind),
                    "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
                }
                for kind in kinds
            },
            "schemas": schemas,
        },
        "x-error-codes": {kind.code: inspect.getdoc(kind) for kind in _error_kinds(errors.StrettoError)},
    }


def _operation(action: str, kinds: dict[str, Any]) -> dict[str, Any]:
    messages = [{"$ref": f"#/channels/voice/messages/{kind.__name__}"} for kind in kinds.values()]
    return {"action": action, "channel": {"$ref": "#/channels/voice"}, "messages": messages}


def _error_kinds(kind: type[errors.StrettoError]) -> list[type[errors.StrettoError]]:
    below = [kind for child in kind.__subclasses__() for kind in _error_kinds(child)]
    return [kind, *below] if "code" in vars(kind) else below


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the file is out of date")
    text = json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=False) + "\n"
    if not parser.parse_args().check:
        FILE.write_text(text, "utf-8")
        return 0
    is_current = FILE.exists() and FILE.read_text("utf-8") == text
    if not is_current:
        print(f"{FILE.relative_to(ROOT)} is out of date; run: python scripts/asyncapi.py", file=sys.stderr)
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
