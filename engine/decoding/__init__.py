"""Clients' compressed audio, decoded in a process of its own: what brings a library down ends one stream, not the gateway."""

from __future__ import annotations

from engine.decoding.room import DecodingRoom, RemoteDecoder, StreamDied

__all__ = ["DecodingRoom", "RemoteDecoder", "StreamDied"]
