"""Why a session begins no further turn: the server stops, or its key has used what it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import Draining, QuotaExceeded, StrettoError
from gateway.turn import Parts

if TYPE_CHECKING:
    from gateway.session.session import Session


def turn_refusal(session: Session, parts: Parts) -> StrettoError | None:
    """The refusal, if there is one; nothing is counted."""
    if session.is_draining:
        return Draining("The server is about to stop and starts no new turns; reconnect.", retry_after_ms=1000)
    return parts.quota.of(session.profile.rights.account).turn_refusal(parts.now())


def take_turn(session: Session, parts: Parts) -> None:
    """One more turn is asked for. Raises `Draining`, `QuotaExceeded`."""
    refusal = turn_refusal(session, parts)
    account = parts.quota.of(session.profile.rights.account)
    if refusal is None:
        account.begin_turn(parts.now())
        return
    if isinstance(refusal, QuotaExceeded):
        parts.metrics.process.quota_refused.labels(account.name, refusal.limit).inc()
    raise refusal
