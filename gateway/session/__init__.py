"""One conversation: its history, its settings, its turns. Outlives its connection."""

from __future__ import annotations

from gateway.session.attachment import Attachment
from gateway.session.frames import error_frame
from gateway.session.planning import changed
from gateway.session.saving import SavedSession
from gateway.session.session import Session

__all__ = ["Attachment", "SavedSession", "Session", "changed", "error_frame"]
