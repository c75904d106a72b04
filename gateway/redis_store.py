"""What several gateways share in Redis: a copy of the sessions that each process holds in memory, and tickets.

One Redis hash a session: `state` (what `saving` says), `owner` (the process that holds it), and digests of its resume tokens. The copy is
written by one task, a moment after something changed; nobody else ever waits for Redis but a client that resumes. A claim is one script,
so of two processes one gets the session; the other one's next save or touch is refused and tells it so. While Redis is away
everything goes on from memory; when it is back, or came back empty, everything is saved again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.metrics import StoreMetrics
from gateway.redis_book import RedisBook
from gateway.session import SavedSession, saving
from gateway.session.saving import Mark
from gateway.session_store import Claim, Entry, MemoryStore
from gateway.tickets import KeptTicket, MemoryKeeper

TICK_S = 0.2  # a copy is at most this old, and the round trip; what was heard of a reply that sounds, a second (`saving.mark`)
TOUCH_S = 1.0  # how soon a process hears that another one has its session
CALL_S = 0.5  # for one answer of Redis; a resume waits no longer
REST_S = 1.0  # before Redis is asked again after it failed
AT_ONCE = 32  # sessions in one round trip; their copies take about a millisecond to make
CONNECTIONS = 8
OVER_S = 10  # how long it stays known that a session has ended, so that nobody saves it again
OVER_AT_ONCE = 4096  # ended sessions that wait for Redis; older ones expire there by themselves

_ID = re.compile(r"sess_[0-9a-f]{16}")
# KEYS: the session. ARGV: ours, digest shown, new digest, milliseconds, whether we hold it in memory.
_CLAIM = """
local kept = redis.pcall('HMGET', KEYS[1], 'owner', 'token', 'before', 'state')
if kept.err or not kept[4] then return {'gone'} end
if kept[1] == ARGV[1] and ARGV[5] == '1' then return {'here'} end
if kept[2] ~= ARGV[2] and kept[3] ~= ARGV[2] then return {'denied'} end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', ARGV[3], 'before', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'claimed', kept[4]}
"""
# What is no hash under one of our names is no session: one such must not keep all others from being saved.
_OWNER = """
local owner = redis.pcall('HGET', KEYS[1], 'owner')
if type(owner) == 'table' then
  redis.call('DEL', KEYS[1])
  owner = false
end"""
# ARGV: ours, milliseconds, state, digest, digest before. 1: saved, 0: another process has it.
_SAVE = f"""{_OWNER}
if owner and owner ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'state', ARGV[3], 'token', ARGV[4], 'before', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
# ARGV: ours, milliseconds. 1: still ours, 0: another process has it, -1: it is not there.
_TOUCH = f"""{_OWNER}
if not owner then return -1 end
if owner ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
# ARGV: ours, milliseconds. An owner nobody is keeps the id from being saved again.
_END = f"""{_OWNER}
if owner and owner ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'owner', '')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
# 1: unused until now, 0: used before, -1: not there.
_SPEND = """
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
return redis.call('HSETNX', KEYS[1], 'spent', '1')
"""

T = TypeVar("T")

log = logging.getLogger("stretto.store")


class RedisStore(MemoryStore):
    """`now` is the loop's clock. `url`, `prefix` of its keys and `resume_s` as in `[session]`."""

    def __init__(self, url: str, prefix: str, resume_s: float, metrics: StoreMetrics, now: Callable[[], float]) -> None:
        super().__init__()
        self._prefix = prefix
        self._expiry_ms = round(1000 * (resume_s + TOUCH_S))
        self._metrics = metrics
        self._now = now
        self._owner = secrets.token_hex(8)
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=CALL_S,
            socket_timeout=CALL_S,
            socket_connect_timeout=CALL_S,
            retry=Retry(NoBackoff(), 1),  # a connection that Redis has closed meanwhile is opened anew
        )
        self._redis = Redis.from_pool(pool)
        self._claim, self._save, self._touch, self._end = map(self._redis.register_script, (_CLAIM, _SAVE, _TOUCH, _END))
        self._saved: dict[str, Mark] = {}
        self._over: deque[str] = deque(maxlen=OVER_AT_ONCE)
        self._writing = asyncio.Lock()
        self._touched_s = self._asked_again_s = float("-inf")
        self._is_away = False
        self._taken_over: Callable[[Entry], None] = lambda entry: None

    def remove(self, entry: Entry) -> None:
        """As in memory; unless another process may go on with it, nobody finds it any more."""
        super().remove(entry)
        session_id = entry.session.session_id
        if self._saved.pop(session_id, None) is not None and not entry.is_kept:
            self._over.append(session_id)

    async def claim(self, session_id: str, token: str, new_token: str, binding: bytes) -> Claim:
        """As promised; memory decides while Redis is away. A session that nobody can read any more is `gone`."""
        if not _ID.fullmatch(session_id):
            return "here"
        is_held = self.find(session_id) is not None
        shown, given = _digest(token, binding), _digest(new_token, binding)
        arguments: list[str | int] = [self._owner, shown, given, self._expiry_ms, int(is_held)]
        answer = await self.ask("claim", lambda: self._claim([self._key(session_id)], arguments))
        match answer:
            case None:
                return "here"
            case [b"claimed", bytes(state)]:
                return _read(session_id, state)
            case [b"denied"]:
                return "denied"
            case [b"here"]:
                return "here"
            case _:
                return "gone"

    async def ask(self, call: str, question: Callable[[], Awaitable[T]]) -> T | None:
        """Redis' answer, within a second; None while it is away."""
        if self._is_resting():
            return None
        try:
            async with asyncio.timeout(2 * CALL_S):
                answer = await question()
        except (RedisError, OSError, TimeoutError) as error:
            self._failed(call, error)
            return None
        self._answered()
        return answer

    def tickets(self, own: MemoryKeeper) -> RedisTickets:
        """Where the gateways that share this store keep their tickets."""
        return RedisTickets(self, self._redis, f"{self._prefix}ticket:", own)

    def book(self) -> RedisBook:
        """Where the gateways that share this store count what keys use."""
        return RedisBook(self, self._redis, f"{self._prefix}quota:")

    async def flush(self) -> None:
        """Save what has changed; while Redis is away, nothing."""
        async with self._writing:
            if self._is_resting():
                return
            try:
                await self._write()
            except (RedisError, OSError, TimeoutError) as error:
                self._failed("save", error)
            else:
                self._answered()

    async def run(self, taken_over: Callable[[Entry], None]) -> None:
        """Save what changes until cancelled, then let go of Redis, which need not answer any more."""
        self._taken_over = taken_over
        try:
            while True:
                await asyncio.sleep(TICK_S)
                await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of Redis."""
        with contextlib.suppress(RedisError, OSError):  # a cancel stays one, whatever becomes of this
            async with asyncio.timeout(CALL_S):
                await self._redis.aclose()

    async def _write(self) -> None:
        now = self._now()
        is_due = now - self._touched_s >= TOUCH_S
        kept = [entry for entry in self.entries() if entry.may_move and not entry.is_ending]
        due = [entry for entry in kept if is_due or self._saved.get(entry.session.session_id) != _mark(entry)]
        for at in range(0, len(due), AT_ONCE):
            await self._write_some(due[at : at + AT_ONCE])
        while self._over:
            await self._end([self._key(self._over[0])], [self._owner, OVER_S * 1000])
            self._over.popleft()
        if is_due:
            self._touched_s = now

    async def _write_some(self, entries: Sequence[Entry]) -> None:
        """Save or touch these in one round trip, and hear which of them other processes have."""
        marks = [_mark(entry) for entry in entries]
        async with self._redis.pipeline(transaction=False) as pipeline:
            for entry, mark in zip(entries, marks, strict=True):
                await self._put(pipeline, entry, is_new=self._saved.get(entry.session.session_id) != mark)
            answers = await pipeline.execute()
        for entry, mark, answer in zip(entries, marks, answers, strict=True):
            session_id = entry.session.session_id
            if answer == 1 and self.find(session_id) is entry:
                self._saved[session_id] = mark
            elif answer != 1:
                self._saved.pop(session_id, None)
            if answer == 0 and not entry.is_ending:
                self._taken_over(entry)

    async def _put(self, pipeline: Pipeline, entry: Entry, *, is_new: bool) -> None:
        key = [self._key(entry.session.session_id)]
        if not is_new:
            await self._touch(key, [self._owner, self._expiry_ms], client=pipeline)
            return
        before = "" if entry.session.has_spoken or not entry.token_before else _digest(entry.token_before, entry.binding)
        state = saving.encode(entry.session)
        token = _digest(entry.token, entry.binding)
        await self._save(key, [self._owner, self._expiry_ms, state, token, before], client=pipeline)

    def _key(self, session_id: str) -> str:
        return f"{self._prefix}{session_id}"

    def _is_resting(self) -> bool:
        return self._is_away and self._now() < self._asked_again_s

    def _failed(self, call: str, error: Exception) -> None:
        self._metrics.errors.labels(call).inc()
        self._asked_again_s = self._now() + REST_S
        if not self._is_away:
            self._is_away = True
            self._metrics.away.set(1)
            log.warning("session store is away; sessions live in memory alone", extra={"call": call, "detail": type(error).__name__})

    def _answered(self) -> None:
        if self._is_away:
            self._is_away = False
            self._metrics.away.set(0)
            log.warning("session store is back", extra={"n_sessions": len(self.entries())})


class RedisTickets:
    """A `TicketKeeper` of all gateways, over this process's own: that one bounds, and alone knows the tickets made while Redis is away.

    A ticket that Redis has counts as used up here, so that none opens two doors when Redis goes or comes back empty: its holder asks
    for a new one.
    """

    def __init__(self, store: RedisStore, redis: Redis, prefix: str, own: MemoryKeeper) -> None:
        self._store, self._redis, self._prefix, self._own = store, redis, prefix, own
        self._spend = redis.register_script(_SPEND)

    async def keep(self, name: str, holder: str, data: bytes, ttl_s: float) -> bool:
        """As promised; the room is each process's own."""
        if not await self._own.keep(name, holder, data, ttl_s):
            return False
        if await self._store.ask("ticket", lambda: self._put(name, data, ttl_s)):
            await self._own.spend(name)
        return True

    async def find(self, name: str) -> KeptTicket | None:
        """As promised."""
        found: list[Any] | None = await self._store.ask("ticket", lambda: self._get(name))  # Any: bytes or None
        if found is None or found[0] is None:
            return await self._own.find(name)
        return KeptTicket(found[0], is_spent=found[1] is not None)

    async def spend(self, name: str) -> bool:
        """As promised."""
        is_first_here = await self._own.spend(name)
        answer = await self._store.ask("ticket", lambda: self._spend([self._prefix + name]))
        return is_first_here if answer in (None, -1) else answer == 1

    async def _put(self, name: str, data: bytes, ttl_s: float) -> bool:
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(self._prefix + name, "data", data)  # buffered, not awaited
            pipeline.pexpire(self._prefix + name, round(1000 * ttl_s))
            await pipeline.execute()
        return True

    async def _get(self, name: str) -> Any:  # Any: two of bytes or None
        return await self._redis.hmget(self._prefix + name, ["data", "spent"])


def _mark(entry: Entry) -> Mark:
    return (*saving.mark(entry.session), entry.token, entry.session.has_spoken)


def _read(session_id: str, state: bytes) -> SavedSession | Literal["gone"]:
    """Of another version, or of another session: its client begins anew."""
    try:
        copy = saving.decode(state)
    except msgspec.MsgspecError as error:
        log.warning("saved session not understood", extra={"session_id": session_id, "detail": str(error)})
        return "gone"
    if copy.session_id != session_id:
        log.warning("saved session is another one", extra={"session_id": session_id})
        return "gone"
    return copy


def _digest(token: str, binding: bytes) -> str:
    """What Redis knows of a token: nobody who reads it there can resume, and no other key's client can either."""
    return hashlib.sha256(binding + b"\0" + token.encode("utf-8", "replace")).hexdigest()
