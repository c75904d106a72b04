"""The book of the keys for gateways on several machines: what `ledger` keeps in memory, kept in Redis by one script.

Two hashes a key: `use` has the slots of its sums (`1:28351992`: of the first sum, by Redis' clock), `held` the conversations of each
process, until when they count, and the number of its last report. A process that dies holds nothing after `LEASE_S`; what it used stays.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis

from gateway.quota import LEASE_S, N_SLOTS, WINDOWS_S, Report, Told

if TYPE_CHECKING:
    from gateway.redis_store import RedisStore

KEPT_S = 93_600  # a day and more: as long as the longest sum
# KEYS: use, held. ARGV: holder, lease in s, conversations, most of them, number, slots of a sum, seconds that the hashes are kept; then for
# each sum its window in s, what was spent, and the slot from which on to tell. A process that is silent for an hour is nobody any more,
# and what is no hash under one of our names is not ours.
_SETTLE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
for _, key in ipairs(KEYS) do
  if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
end
local elsewhere, before = 0, 0
local held = redis.call('HGETALL', KEYS[2])
for at = 1, #held, 2 do
  local n, ends, number = string.match(held[at + 1], '^(%d+) (%d+) (%d+)$')
  if held[at] == ARGV[1] then before = tonumber(number or 0)
  elseif not n or tonumber(ends) + 3600 < now then redis.call('HDEL', KEYS[2], held[at])
  elseif tonumber(ends) > now then elsewhere = elsewhere + n end
end
local n, most, number, slots = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local granted = (most == 0 or n + elsewhere <= most) and 1 or 0
local ends = math.ceil(now + ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], string.format('%d %d %d', n - (1 - granted), ends, math.max(number, before)))
redis.call('EXPIRE', KEYS[2], ARGV[7])
local told = {string.format('%.6f', now), granted, elsewhere}
for sum = 1, (#ARGV - 7) / 3 do
  local window, spent, first = ARGV[5 + 3 * sum], tonumber(ARGV[6 + 3 * sum]), tonumber(ARGV[7 + 3 * sum])
  local last = math.floor(now / (window / slots))
  local name = sum .. ':'
  if number > before and spent > 0 then
    local value = redis.call('HINCRBYFLOAT', KEYS[1], name .. string.format('%d', last), ARGV[6 + 3 * sum])
    if tonumber(value) == spent then
      for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
        local of, slot = string.match(field, '^(%d+):(%d+)$')
        if not of or (tonumber(of) == sum and tonumber(slot) < last - slots) then redis.call('HDEL', KEYS[1], field) end
      end
    end
    redis.call('EXPIRE', KEYS[1], ARGV[7])
  end
  first = math.min(math.max(first, last - slots), last)
  local fields = {}
  for slot = first, last do fields[#fields + 1] = name .. string.format('%d', slot) end
  told[#told + 1] = first
  told[#told + 1] = redis.call('HMGET', KEYS[1], unpack(fields))
end
return told
"""


class RedisBook:
    """A `Book`."""

    def __init__(self, store: RedisStore, redis: Redis, prefix: str) -> None:
        self._store, self._redis, self._prefix = store, redis, prefix
        self._holder = secrets.token_hex(8)
        self._script = redis.register_script(_SETTLE)

    async def settle(self, reports: Sequence[Report]) -> Sequence[Told | None] | None:
        """As promised; one round trip for all."""
        answers = await self._store.ask("quota", lambda: self._asked(reports))
        return None if answers is None else [_read(answer) for answer in answers]

    async def _asked(self, reports: Sequence[Report]) -> list[Any]:  # Any: Redis' answers
        async with self._redis.pipeline(transaction=False) as pipeline:
            for report in reports:
                keys = [f"{self._prefix}{kind}:{report.account}" for kind in ("use", "held")]
                await self._script(keys, self._arguments(report), client=pipeline)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    def _arguments(self, report: Report) -> list[str | int | float]:
        sums = zip(WINDOWS_S, report.spent, report.first, strict=True)
        return [
            *(self._holder, round(LEASE_S), report.n_sessions, report.most_sessions, report.number, N_SLOTS, KEPT_S),
            *(argument for window_s, spent, first in sums for argument in (window_s, spent, first)),
        ]


def _read(answer: Any) -> Told | None:  # Any: as the script says, or its error
    """None where this key's hashes hold something that is none of ours: the others must go on."""
    try:
        now, granted, n_elsewhere, *sums = answer
        return Told(
            now_s=float(now),
            is_granted=granted == 1,
            n_elsewhere=n_elsewhere,
            first=tuple(sums[0::2]),
            amounts=tuple(tuple(float(amount or 0) for amount in amounts) for amounts in sums[1::2]),
        )
    except (TypeError, ValueError):
        return None
