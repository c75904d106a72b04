"""`stretto load`: many guests at a gateway, arriving by a curve, and what they, the gateway and its machine went through.

Exit codes: 0 done and within the limits, 1 a limit is broken (without limits: somebody met an error or lost a turn), 2 wrong use, 3 no
gateway there.
"""

from gateway.load.command import add_arguments, run

__all__ = ["add_arguments", "run"]
