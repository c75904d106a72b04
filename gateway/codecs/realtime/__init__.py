"""The OpenAI Realtime (GA) protocol over WebSocket: JSON text frames <-> events, sans-I/O.

`codec` is the object of one connection; `requests` and `overrides` read what clients send, `items`, `echo` and `response` write what
they get, `faults` names what went wrong. Pure: ids come from a unique string given at the start, nothing here knows the time.
"""

from __future__ import annotations

from gateway.codecs.realtime.codec import RealtimeCodec

__all__ = ["RealtimeCodec"]
