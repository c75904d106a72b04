"""Own processes for stages that are heavy on the CPU, prone to crash, or under a licence that the core does not share.

The parent's side is `supervisor.py` (ready, heartbeat, restart, requests) over `process.py` (one child's life); the child's is
`child.py` over `jobs.py` (its queue). Both speak `frames.py` through a socket pair.
"""

from engine.worker.supervisor import Worker, WorkerSpec

__all__ = ["Worker", "WorkerSpec"]
