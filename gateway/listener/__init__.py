"""Audio in, utterances out: what a person says, when they begin, pause and have finished."""

from __future__ import annotations

from gateway.listener.listener import Listener
from gateway.listener.utterance import Owner, Utterance

__all__ = ["Listener", "Owner", "Utterance"]
