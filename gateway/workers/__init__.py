"""Several gateway processes behind one port of one machine, and what they tell each other.

`parent` starts them and keeps them alive. Each has a Unix socket (`desk` answers there, `siblings` asks) and sees how many places the
others hold (`places`); `row` is all of it for one worker. A connection that resumes another worker's session is carried there (`line`),
frame by frame, so nothing of it is lost.
"""

from __future__ import annotations

from gateway.workers.desk import Desk
from gateway.workers.parent import Launch, supervise
from gateway.workers.row import Row
from gateway.workers.worker import Worker

__all__ = ["Desk", "Launch", "Row", "Worker", "supervise"]
