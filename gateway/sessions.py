"""The store of sessions: id -> session, who is attached, when a lost one expires.

Owns every session's task. Sessions live in this process's memory; a client that comes back within `resume_s` finds its own.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from gateway import profile
from gateway.admission import Admission
from gateway.auth import FULL_RIGHTS, Rights
from gateway.errors import Drained, Overloaded, ResumeDenied, StrettoError, Superseded
from gateway.events import Limits, Resume, SessionReady, StartSession, VoiceInfo
from gateway.session import Attachment, Session
from gateway.session_store import Entry, MemoryStore, SessionStore
from gateway.turn import Parts

log = logging.getLogger("stretto.sessions")


class Crashed(StrettoError):
    """Our own bug ended the session."""

    close = 1011


class Sessions:
    """Use `run` as the task that owns all sessions; `open`, `resume` and `lose` are called by connections."""

    def __init__(self, parts: Parts, admission: Admission, store: SessionStore | None = None) -> None:
        self._parts = parts
        self.admission = admission
        self._store = store or MemoryStore()
        self._tasks: asyncio.TaskGroup
        self._stopping = asyncio.Event()
        self.started = asyncio.Event()

    def __len__(self) -> int:
        return len(self._store.entries())

    def ids(self) -> list[str]:
        """Of the open sessions."""
        return [entry.session.session_id for entry in self._store.entries()]

    @property
    def n_busy(self) -> int:
        """Sessions with a turn on its way."""
        return sum(1 for entry in self._store.entries() if entry.session.is_busy)

    async def run(self) -> None:
        """Own the sessions until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self.started.set()
            await self._stopping.wait()
            for entry in self._store.entries():
                self._end(entry)

    def stop(self) -> None:
        """End every session."""
        self._stopping.set()

    async def open(self, start: StartSession, rights: Rights = FULL_RIGHTS) -> tuple[Session, Attachment, SessionReady]:
        """A new session for this connection, or the one it wants to resume.

        Raises what `profile.started` raises, `ResumeDenied`, `Overloaded` when only returning clients find a place, and `Drained`. A
        cancel leaves no session.
        """
        if self.admission.is_draining:  # it came in before the drain began, and asks only now
            raise Drained("The server stops.")
        if start.resume is not None and (found := self._resume(start.resume)) is not None:
            return found
        if self.admission.is_full():
            self._make_room()
        if self.admission.is_full():
            self._parts.metrics.refused.labels("full").inc()
            raise Overloaded("All places are taken; only clients that resume their session are let in.", retry_after_ms=5000)
        parts = self._parts
        account = parts.quota.of(rights.account)
        if (refusal := account.session_refusal()) is not None:
            parts.metrics.process.quota_refused.labels(account.name, refusal.limit).inc()
            raise refusal
        able = {"can_listen": parts.ears is not None, "takes_tools": parts.model.facts.takes_tools}
        encodings = parts.encoding.rates() if parts.encoding is not None else {}
        wish = profile.started(start, parts.settings, parts.voices, rights, encodings=encodings, **able)
        session = Session(f"sess_{secrets.token_hex(8)}", wish, start, self._parts)
        entry = Entry(session)
        self._store.add(entry)
        account.n_sessions += 1
        self._parts.metrics.sessions.set(len(self))
        self._tasks.create_task(self._own(session), name=session.session_id)
        try:
            await session.opened.wait()
        except BaseException:
            self._end(entry)
            raise
        log.info("session started", extra={"session_id": session.session_id, "output": wish.output, "language": wish.language})
        return session, session.attach(), self._ready(entry, resumed=False)

    def lose(self, session: Session, attachment: Attachment, *, is_over: bool) -> None:
        """The connection is gone: end the session, or keep it for `resume_s`."""
        entry = self._store.find(session.session_id)
        if not session.detach(attachment) or entry is None:
            return
        resume_s = self._parts.settings.session.resume_s
        if is_over or entry.is_ending or resume_s == 0 or self.admission.is_draining:
            self._end(entry)
            return
        self.admission.detached += 1
        entry.expiry = asyncio.get_running_loop().call_later(resume_s, self._end, entry)

    def drain(self, deadline_s: float) -> None:
        """Tell every client that the server stops; those that are away end now."""
        for entry in self._store.entries():
            if entry.session.attachment is None:
                self._end(entry)
            else:
                entry.session.drain(round(deadline_s * 1000))

    def dismiss(self, *, busy_too: bool) -> None:
        """Close the connections of sessions that are done (or of all)."""
        for entry in self._store.entries():
            if entry.session.attachment is not None and (busy_too or not entry.session.is_busy):
                entry.session.attachment.end(Drained("The server stops."))

    def _resume(self, wish: Resume) -> tuple[Session, Attachment, SessionReady] | None:
        """The session to go on with; None where it is gone or the frames asked for are not kept any more."""
        entry = self._store.find(wish.session_id)
        if entry is None or entry.is_ending:
            return None
        if not entry.opens(wish.token):
            raise ResumeDenied("The resume token does not fit this session.")
        if not entry.session.outbox.rewind(wish.last_seq):
            self._give_up(entry)
            return None
        self._stop_expiry(entry)
        entry.renew()
        log.info("session resumed", extra={"session_id": wish.session_id, "last_seq": wish.last_seq})
        return entry.session, entry.session.attach(), self._ready(entry, resumed=True)

    def _make_room(self) -> None:
        """A house full of sessions that somebody opened and left without a word has room for one who comes to talk."""
        idle = next((entry for entry in self._store.entries() if entry.is_idle_and_away), None)
        if idle is not None:
            self._end(idle)

    def _give_up(self, entry: Entry) -> None:
        """Its client lacks frames that are not kept and begins anew: nobody comes back to this one, so its place is free."""
        if entry.session.attachment is not None:
            entry.session.attachment.end(Superseded("The client began a new session instead of this one."))
        self._end(entry)

    def _end(self, entry: Entry) -> None:
        self._stop_expiry(entry)
        entry.is_ending = True
        entry.session.close()

    def _stop_expiry(self, entry: Entry) -> None:
        """It is not away any more: it is back, or over."""
        if entry.expiry is not None:
            entry.expiry.cancel()
            entry.expiry = None
            self.admission.detached -= 1

    async def _own(self, session: Session) -> None:
        try:
            await session.run()
        except Exception:  # where a session meets its owner: its bug must not end the others
            log.exception("session crashed", extra={"session_id": session.session_id})
            if session.attachment is not None:
                session.attachment.end(Crashed("The gateway failed on this conversation."))
        finally:
            self._stop_expiry(self._store.remove(session.session_id))
            self._parts.quota.of(session.profile.rights.account).n_sessions -= 1
            self._parts.metrics.sessions.set(len(self))
            log.info("session ended", extra={"session_id": session.session_id})

    def _ready(self, entry: Entry, *, resumed: bool) -> SessionReady:
        settings = self._parts.settings.session
        return SessionReady(
            session_id=entry.session.session_id,
            resume_token=entry.token,
            resumed=resumed,
            limits=Limits(
                lead_ms=settings.lead_ms, idle_s=settings.idle_s, message_bytes=settings.message_bytes, text_bytes=settings.text_bytes
            ),
            audio_out=entry.session.profile.audio_out,
            audio_in=entry.session.audio_in,
            voices=tuple(VoiceInfo(id=voice.id, languages=voice.languages) for voice in self._parts.voices.voices()),
        )
