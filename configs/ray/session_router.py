"""A conversation keeps its replica: a request router for Ray Serve (2.60).

Ray's own consistent-hash router moves conversations to another replica whenever one is added, and each of them then reads its history
again there. This one remembers where a conversation lives: one that has a home goes home, a new one goes to the replica with the fewest
conversations, one whose replica is gone is given a new home. Requests without a session are routed as Ray does it.

Knows a conversation by the header `x-session-id`, which the gateway sends with every request. Each of Ray's proxies remembers for itself:
let a gateway reach one of them (its own node's), or see a conversation move once.

Stands alone, so that it can be copied to where Ray runs: mounted on the PYTHONPATH of head and workers.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from ray.serve.request_router import PendingRequest, RunningReplica

FORGET_AFTER_S = 900.0  # a silence after which the history has left any cache
MOST_SESSIONS = 100_000  # about 30 MB

Replica = TypeVar("Replica", bound=Hashable)


class Homes(Generic[Replica]):
    """Session -> replica. Moments are seconds of one monotonic clock."""

    def __init__(self, forget_after_s: float = FORGET_AFTER_S, most: int = MOST_SESSIONS) -> None:
        self._forget_after_s, self._most = forget_after_s, most
        self._homes: OrderedDict[str, tuple[Replica, float]] = OrderedDict()  # the longest silent first
        self._tenants: Counter[Replica] = Counter()

    def home(self, session: str, replicas: Iterable[Replica], now_s: float) -> Replica | None:
        """Where the session lives among `replicas`, from now on too; None when there are none."""
        self._forget(now_s)
        living = list(replicas)
        known = self._leave(session)
        if known not in living:
            if not living:
                return None
            known = min(living, key=lambda replica: self._tenants[replica])
        self._homes[session] = (known, now_s)
        self._tenants[known] += 1
        return known

    def _forget(self, now_s: float) -> None:
        while self._homes:
            session, (_, at_s) = next(iter(self._homes.items()))
            if now_s - at_s < self._forget_after_s and len(self._homes) < self._most:
                return
            self._leave(session)

    def _leave(self, session: str) -> Replica | None:
        replica, _ = self._homes.pop(session, (None, 0.0))
        if replica is not None:
            self._tenants[replica] -= 1
            if not self._tenants[replica]:
                del self._tenants[replica]
        return replica


class SessionRouter(ConsistentHashRouter):  # type: ignore[misc]  # Ray is installed where it runs
    """`request_router_class: session_router.SessionRouter`; the arguments are those of Ray's consistent-hash router."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: passed on to Ray
        super().__init__(*args, **kwargs)
        self._homes: Homes[Any] = Homes()  # Any: Ray's ReplicaID

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The session's home first, then where Ray would try."""
        ranks: list[list[RunningReplica]] = await super().choose_replicas(candidate_replicas, pending_request)
        session = pending_request.metadata.session_id if pending_request is not None else ""
        if not session:
            return ranks
        homes = {replica.replica_id: replica for replica in candidate_replicas}
        home = self._homes.home(session, homes, time.monotonic())
        if home is None:
            return ranks
        return [[homes[home]], *(rank for rank in ranks if rank[0].replica_id != home)]
