#!/usr/bin/env python3
"""Wait until nobody is connected to the gateway in this container: a preStop hook, so that a rollout cuts no call.

    wait-for-calls SECONDS

Kubernetes takes a stopping pod out of its Service first, so that no new call arrives, and sends SIGTERM when this ends: after the last
call, or after SECONDS. Asks /metrics with STRETTO_METRICS__KEY, or the first of STRETTO_KEYS; a gateway that does not answer is not waited
for.
"""

import os
import re
import sys
import time
import urllib.error
import urllib.request

EVERY_S = 2.0
SETTLE_S = 5.0  # the time that a cluster's proxies take to send newcomers elsewhere


def connections(url: str, key: str) -> int | None:
    """How many are connected; None when the gateway does not say."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            text = response.read().decode()
    except (urllib.error.URLError, OSError):
        return None
    found = re.findall(r"^stretto_connections(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)  # one for each worker
    return int(sum(map(float, found))) if found else None


def wait(url: str, key: str, seconds: float, settle_s: float = SETTLE_S, every_s: float = EVERY_S) -> int | None:
    """Return with the calls that are still open: 0 after the last one, others after `seconds`, None without an answer."""
    ends_at = time.monotonic() + seconds
    time.sleep(min(settle_s, seconds))
    while (n := connections(url, key)) and time.monotonic() < ends_at:
        time.sleep(every_s)
    return n


def main() -> int:
    """Wait; always ends well, because a hook's failure only makes noise."""
    if len(sys.argv) != 2:
        print(f"expected: {sys.argv[0]} SECONDS", file=sys.stderr)
        return 2
    key = os.environ.get("STRETTO_METRICS__KEY", "") or os.environ.get("STRETTO_KEYS", "").split(",")[0].strip()
    url = f"http://127.0.0.1:{os.environ.get('STRETTO_SERVER__PORT', '8080')}/metrics"
    n = wait(url, key, float(sys.argv[1]))
    print("nobody is connected" if n == 0 else "no answer from the gateway" if n is None else f"{n} calls are still open", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
