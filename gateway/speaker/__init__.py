"""Segments to speech, and speech to frames on their way to one listener."""

from __future__ import annotations

from gateway.speaker.framing import Encoding
from gateway.speaker.pace import VoicePace
from gateway.speaker.speaker import Speaker, SpeakerSettings
from gateway.speaker.track import SegmentRecord

__all__ = ["Encoding", "SegmentRecord", "Speaker", "SpeakerSettings", "VoicePace"]
