"""The store of sessions: id -> session, who is attached, when a lost one expires.

Owns every session's task. Sessions live in this process's memory; a client that comes back within `resume_s` finds its own, or, where
gateways share a store, what another process saved of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

from gateway import profile
from gateway.admission import Admission
from gateway.auth import FULL_RIGHTS, Rights
from gateway.errors import (
    BeyondShare,
    Drained,
    Overloaded,
    ResumeDenied,
    SlowReader,
    StrettoError,
    Superseded,
    TooManySessions,
    UnknownPersona,
)
from gateway.events import Limits, Resume, SessionReady, StartSession, VoiceInfo
from gateway.fair_share import is_fair
from gateway.session import Attachment, SavedSession, Session
from gateway.session.granting import grant
from gateway.session.saving import follows, restored
from gateway.session_store import Entry, MemoryStore, SessionStore, binding_of, new_token
from gateway.settling import Settling
from gateway.turn import Parts

Opened = tuple[Session, Attachment, SessionReady]
Carry = Callable[[Any, float], Awaitable[None]]  # Any: a client's socket; seconds that it may take nothing
Holder = Callable[[StartSession, Rights], Awaitable[Carry | None]]
"""Asks the other workers of this machine for the session that is to be resumed."""

END_S = 1.0  # for a session's tasks to end; it is a few steps of the loop

log = logging.getLogger("stretto.sessions")


class HeldElsewhere(Exception):
    """Another process of this machine holds the session; `carry` brings a socket there and returns at its end."""

    def __init__(self, carry: Carry) -> None:
        super().__init__("another worker has this session")
        self.carry = carry


class Crashed(StrettoError):
    """Our own bug ended the session."""

    close = 1011


class Sessions:
    """Use `run` as the task that owns all sessions; `open`, `resume` and `lose` are called by connections."""

    def __init__(
        self,
        parts: Parts,
        admission: Admission,
        store: SessionStore | None = None,
        holder: Holder | None = None,
        settling: Settling | None = None,
    ) -> None:
        self._parts = parts
        self._settling = settling or Settling(parts.quota, None, parts.metrics.process.quota_alone, parts.now)
        self._holder = holder
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
        async with asyncio.TaskGroup() as keeping:
            saving = keeping.create_task(self._store.run(self._taken_over), name="session store")
            settling = keeping.create_task(self._settling.run(), name="settling")
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.started.set()
                await self._stopping.wait()
                for entry in self._store.entries():
                    self._end(entry, is_kept=True)
            await self._store.flush()
            settling.cancel()
            await asyncio.wait([settling])  # until then it holds the keys that it was paying for
            await self._settling.finish()
            saving.cancel()

    def stop(self) -> None:
        """End every session."""
        self._stopping.set()

    async def open(self, start: StartSession, rights: Rights = FULL_RIGHTS, *, may_move: bool = True, is_back: bool = False) -> Opened:
        """A new session for this connection, or the one it wants to resume. `may_move`: its client can come back on another connection.

        `is_back`: it was let in beyond the bounds of newcomers, to resume. Raises what `profile.started` raises, `ResumeDenied`,
        `Overloaded` when only returning clients find a place, `Drained`, and `HeldElsewhere`. A cancel leaves no session.
        """
        if self.admission.is_draining:  # it came in before the drain began, and asks only now
            raise Drained("The server stops.")
        found = None if start.resume is None else await self._resume(start, start.resume, rights)
        if isinstance(found, tuple):
            return found
        if found is None:
            self._take_place(rights.account, is_back=is_back)
        parts = self._parts
        wish = self.wished(start, rights)  # first: who asks for what is not there must not hold a place in the book
        try:
            await self._settling.enter(rights.account)
        except TooManySessions as refusal:
            parts.metrics.process.quota_refused.labels(rights.account, refusal.limit).inc()
            raise
        if self.admission.is_draining:  # it began while the book was asked
            raise Drained("The server stops.")
        session = Session(f"sess_{secrets.token_hex(8)}", wish, start, self._parts)
        entry = Entry(session)
        entry.may_move = may_move
        await self._begin(entry)
        log.info("session started", extra={"session_id": session.session_id, "output": wish.output, "language": wish.language})
        return session, session.attach(), self._ready(entry, resumed=False)

    def holds(self, session_id: str, rights: Rights) -> bool:
        """Whether who shows these may have come for a session that is open here: this one, or any of their ticket's user."""
        binding = binding_of(rights)
        found = self._store.find(session_id)
        named = [found] if found is not None else []
        own = [*named, *(self._store.entries() if rights.user else ())]
        return any(hmac.compare_digest(entry.binding, binding) and not entry.is_ending for entry in own)

    def wished(self, start: StartSession, rights: Rights) -> profile.Profile:
        """The settings that a new session has. Raises what `profile.started` raises."""
        parts = self._parts
        able = {"can_listen": parts.ears is not None, "takes_tools": parts.model.facts.takes_tools}
        encodings = parts.encoding.rates() if parts.encoding is not None else {}
        return profile.started(start, parts.settings, parts.voices, rights, encodings=encodings, **able)

    def voices(self) -> tuple[VoiceInfo, ...]:
        """What clients may choose from."""
        return tuple(VoiceInfo(id=voice.id, languages=voice.languages) for voice in self._parts.voices.voices())

    def lose(self, session: Session, attachment: Attachment, *, is_over: bool) -> None:
        """The connection is gone: end the session, or keep it for `resume_s`."""
        entry = self._store.find(session.session_id)
        if not session.detach(attachment) or entry is None:
            return
        resume_s = self._parts.settings.session.resume_s
        if is_over or entry.is_ending or resume_s == 0 or self.admission.is_draining:
            self._end(entry, is_kept=not is_over and self.admission.is_draining)
            return
        self.admission.detached += 1
        entry.expiry = asyncio.get_running_loop().call_later(resume_s, self._end, entry)

    def drain(self, deadline_s: float) -> None:
        """Tell every client that the server stops; those that are away end now."""
        for entry in self._store.entries():
            if entry.session.attachment is None:
                self._end(entry, is_kept=True)
            else:
                entry.session.drain(round(deadline_s * 1000))

    def dismiss(self, *, busy_too: bool) -> None:
        """Close the connections of sessions that are done (or of all)."""
        for entry in self._store.entries():
            if entry.session.attachment is not None and (busy_too or not entry.session.is_busy):
                entry.session.attachment.end(Drained("The server stops."))

    async def flush(self) -> None:
        """What other gateways may know of these sessions is up to date when this returns, or their store is away."""
        await self._store.flush()

    async def _resume(self, start: StartSession, wish: Resume, rights: Rights) -> Opened | Literal["replaced"] | None:
        """The session to go on with; None where it is gone. "replaced": the frames asked for are not kept any more, so it has ended for a
        new one, whose place it leaves.
        """
        if self._store.find(wish.session_id) is None:
            if self._holder is not None and (carry := await self._holder(start, rights)) is not None:
                raise HeldElsewhere(carry)
            self._take_place(rights.account)  # before the claim: a session that is claimed and finds no place is lost to all
        token, binding = new_token(), binding_of(rights)
        claim = await self._store.claim(wish.session_id, wish.token, token, binding)
        entry = self._store.find(wish.session_id)
        if isinstance(claim, SavedSession):
            if entry is None or not entry.opens(wish.token, binding):
                return await self._take_over(claim, wish, token, entry, rights)
        elif claim == "denied":
            raise ResumeDenied("The resume token does not fit this session.")
        if entry is None or entry.is_ending:
            return None
        if not entry.opens(wish.token, binding):
            raise ResumeDenied("The resume token does not fit this session.")
        self._grant(entry, rights)  # before anything is changed: it may refuse
        if entry.session.outbox.has_overflowed or not entry.session.outbox.rewind(wish.last_seq):
            await self._give_up(entry)
            return "replaced"
        self._stop_expiry(entry)
        entry.renew()
        self._parts.metrics.process.resumed.inc()
        log.info("session resumed", extra={"session_id": wish.session_id, "last_seq": wish.last_seq})
        return entry.session, entry.session.attach(), self._ready(entry, resumed=True)

    def _grant(self, entry: Entry, rights: Rights) -> None:
        """The session goes on with the rights that its key has now, on the account that it has now."""
        quota = self._parts.quota
        quota.of(entry.session.profile.rights.account).n_sessions -= 1
        try:
            grant(entry.session, rights, self._parts.settings)
        finally:
            quota.of(entry.session.profile.rights.account).n_sessions += 1

    async def _take_over(self, saved: SavedSession, wish: Resume, token: str, stale: Entry | None, rights: Rights) -> Opened | None:
        """Go on with another process's session; None where its client has seen frames that never were, or its persona is not known
        here. `stale`: ours, from before.
        """
        if stale is not None:
            self._taken_over(stale)
        if not follows(saved, wish.last_seq):
            return None
        try:
            session = restored(saved, self._parts, wish.last_seq, rights)
        except UnknownPersona:
            return None
        entry = Entry(session, token, wish.token)
        await self._begin(entry)
        self._parts.metrics.process.store.moved.labels("in").inc()
        log.info("session taken over", extra={"session_id": saved.session_id, "last_seq": wish.last_seq, "saved_seq": saved.last_seq})
        return entry.session, entry.session.attach(), self._ready(entry, resumed=True, gap=True)

    def _taken_over(self, entry: Entry) -> None:
        """Another process goes on with this session."""
        self._parts.metrics.process.store.moved.labels("out").inc()
        log.info("session left", extra={"session_id": entry.session.session_id})
        if entry.session.attachment is not None:
            entry.session.attachment.end(Superseded("Another gateway goes on with this session."))
        self._end(entry, is_kept=True)

    async def _begin(self, entry: Entry) -> None:
        """Run the session. A cancel leaves none. Raises `Superseded`, or `Drained`, where it has ended meanwhile."""
        self._store.add(entry)
        entry.session.outbox.on_overflow = partial(self._overflowed, entry)
        self._parts.quota.of(entry.session.profile.rights.account).n_sessions += 1
        self._parts.metrics.sessions.set(len(self))
        self._tasks.create_task(self._own(entry), name=entry.session.session_id)
        try:
            await entry.session.opened.wait()
        except BaseException:
            self._end(entry)
            raise
        if entry.is_ending:  # nobody would answer on it any more
            if self.admission.is_draining:
                raise Drained("The server stops.")
            raise Superseded("Another connection took this session at the same moment.")

    def newcomer_refusal(self, account: str) -> StrettoError | None:
        """Why a client of this key with no session here would be refused though there are places, if it would."""
        if (refusal := self.admission.shedding) is not None:
            return refusal
        session = self._parts.settings.session
        if max(self.admission.n_taken, len(self)) < session.max_sessions * (1 - session.reserve_share) - 1:
            return None  # it is none of the last places
        accounts = self._parts.quota.accounts()
        held = {each.name: n_held for each in accounts if (n_held := each.n_in_house)}
        weights = {each.name: each.weight for each in accounts if each.name}
        if is_fair(account, held, weights, session.max_sessions, session.reserve_share):
            return None
        return BeyondShare("The last places are kept for other keys.", retry_after_ms=5000)

    def _take_place(self, account: str, *, is_back: bool = False) -> None:
        """Raises `Overloaded`."""
        if is_back:  # anybody can name a session of their own, and then begin others
            self._parts.metrics.refused.labels("full").inc()
            fault = "Got the start of a new session; this connection was let in beyond the bounds to resume an open one. Try again later."
            raise Overloaded(fault, retry_after_ms=5000)
        if (refusal := self.newcomer_refusal(account)) is not None:
            self._parts.metrics.refused.labels(refusal.reason).inc()
            raise refusal
        if self.admission.is_full():
            self._make_room()
        if self.admission.is_full():
            self._parts.metrics.refused.labels("full").inc()
            raise Overloaded("All places are taken; only clients that resume their session are let in.", retry_after_ms=5000)

    def _make_room(self) -> None:
        """A house full of sessions that somebody opened and left without a word has room for one who comes to talk."""
        idle = next((entry for entry in self._store.entries() if entry.is_idle_and_away), None)
        if idle is not None:
            self._end(idle)

    def _overflowed(self, entry: Entry, error: SlowReader) -> None:
        """Its client does not read, and frames of it are lost: nobody can go on with it."""
        log.warning("session overflowed", extra={"session_id": entry.session.session_id, "detail": str(error)})
        if entry.session.attachment is not None:
            entry.session.attachment.end(error)
        self._end(entry)

    async def _give_up(self, entry: Entry) -> None:
        """Its client lacks frames that are not kept and begins anew: nobody comes back to this one, so its place is free.

        Waits until it does not count any more; a moment, or it counts a little longer.
        """
        if entry.session.attachment is not None:
            entry.session.attachment.end(Superseded("The client began a new session instead of this one."))
        self._end(entry)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await entry.is_gone.wait()

    def _end(self, entry: Entry, *, is_kept: bool = False) -> None:
        """`is_kept`: here alone; another gateway may go on with it."""
        self._stop_expiry(entry)
        if not entry.is_ending:
            entry.is_kept = is_kept
        entry.is_ending = True
        entry.session.close()

    def _stop_expiry(self, entry: Entry) -> None:
        """It is not away any more: it is back, or over."""
        if entry.expiry is not None:
            entry.expiry.cancel()
            entry.expiry = None
            self.admission.detached -= 1

    async def _own(self, entry: Entry) -> None:
        session = entry.session
        try:
            await session.run()
        except Exception:  # where a session meets its owner: its bug must not end the others
            log.exception("session crashed", extra={"session_id": session.session_id})
            if session.attachment is not None:
                session.attachment.end(Crashed("The gateway failed on this conversation."))
        finally:
            self._stop_expiry(entry)
            self._store.remove(entry)
            session.outbox.let_go()
            self._parts.quota.of(session.profile.rights.account).n_sessions -= 1
            self._parts.metrics.sessions.set(len(self))
            entry.is_gone.set()
            log.info("session ended", extra={"session_id": session.session_id})

    def _ready(self, entry: Entry, *, resumed: bool, gap: bool | None = None) -> SessionReady:
        settings = self._parts.settings.session
        return SessionReady(
            session_id=entry.session.session_id,
            resume_token=entry.token,
            resumed=resumed,
            gap=gap,
            turns=entry.session.n_turns if gap else None,
            limits=Limits(
                lead_ms=settings.lead_ms, idle_s=settings.idle_s, message_bytes=settings.message_bytes, text_bytes=settings.text_bytes
            ),
            audio_out=entry.session.profile.audio_out,
            audio_in=entry.session.audio_in,
            voices=self.voices(),
        )
