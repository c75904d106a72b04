"""Between frames and events, sans-I/O: one stateful codec serves one connection and decides how patient it is with its client."""

from __future__ import annotations

from typing import Protocol

from gateway.errors import StrettoError
from gateway.events import ClientEvent, ServerEvent, SessionReady, SessionUpdated, StartSession, UpdateSession, VoiceInfo

Frame = bytes | str  # binary or text on the wire


class Codec(Protocol):
    """One protocol on one connection. Time, sockets and sessions are unknown to it."""

    @property
    def message_bytes(self) -> int:
        """Largest message that it takes."""

    @property
    def idle_s(self) -> float:
        """Seconds of silence after which its client is gone."""

    @property
    def is_strict(self) -> bool:
        """Whether messages that come too fast are dropped and ten mistakes a minute close; else the reader slows down and forgives."""

    @property
    def can_resume(self) -> bool:
        """Whether a lost client comes back to its session."""

    @property
    def opening(self) -> StartSession | None:
        """How its sessions begin where the client does not say so itself."""

    def close_code(self, error: StrettoError) -> int:
        """The code that this protocol's clients know for an error that ends the connection."""

    def decode(self, frame: Frame) -> list[ClientEvent]:
        """What a frame asks for; nothing where it is to be dropped. Raises `ClientError`, with the `ref` of its answer where known."""

    def configure(self, settings: SessionUpdated, voices: tuple[VoiceInfo, ...]) -> UpdateSession | None:
        """What a new session is changed to before its client sees it; None: nothing. Raises `ClientError`."""

    def welcome(self, ready: SessionReady, settings: SessionUpdated) -> list[Frame]:
        """The frames that open the conversation."""

    def encode(self, event: ServerEvent, seq: int | None) -> list[Frame]:
        """An event as frames; none where this protocol does not tell it, or not yet."""
