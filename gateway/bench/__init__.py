"""`stretto bench`: scripted conversations against a running gateway, and what they took.

Exit codes: 0 done, 1 turns failed, 2 wrong use, 3 no gateway there.
"""

from gateway.bench.command import add_arguments, run

__all__ = ["add_arguments", "run"]
