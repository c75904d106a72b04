"""What the gateway uses while it is under load: its process in /proc on this machine, or its own `/metrics`.

A scrape costs the gateway milliseconds, so a process on this machine is read in /proc, and scraped at the edges of windows alone.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.bench.measuring import usage

SCRAPE_S = 10.0
POINTS = 600  # of a series in the report, whatever the length of the load
_LINE = re.compile(r"^([a-z_]+)(?:\{([^}]*)\})? ([-+0-9.eInfNa]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Sample(Struct, frozen=True, kw_only=True):
    """One look. `cpu_s`: used so far; `workers_cpu_s`: by its child processes. None: not to be known from here."""

    at_s: float
    live: int = 0
    cpu_s: float | None = None
    workers_cpu_s: float | None = None
    rss_bytes: int | None = None
    n_files: int | None = None
    n_threads: int | None = None


class Scrape(Struct, frozen=True, kw_only=True):
    """What a page of metrics says: name -> label values -> value."""

    at_s: float
    values: dict[str, dict[str, float]]

    def total(self, name: str) -> float | None:
        """Sum over all labels; None where there is no such metric."""
        found = self.values.get(name)
        return sum(found.values()) if found else None


class Watch:
    """Looks at one gateway. `pid` on this machine; without one, everything comes from its metrics."""

    def __init__(self, url: str, key: str | None, pid: int | None, tls: ssl.SSLContext | None, began_s: float) -> None:
        parts = urlsplit(url)
        self._metrics_url = f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}/metrics"
        self._key, self._pid, self._tls, self._began_s = key, pid, tls, began_s
        self.samples: list[Sample] = []
        self.fault: str | None = None

    async def follow(self, every_s: float, live: Callable[[], int]) -> None:
        """A sample every so often, until cancelled."""
        while True:
            self.samples.append(await self.look(live()))
            await asyncio.sleep(every_s)

    async def look(self, live: int) -> Sample:
        """Now."""
        at_s = time.monotonic() - self._began_s
        if self._pid is not None:
            return _own(self._pid, at_s, live)
        page = await self.scrape()
        if page is None:
            return Sample(at_s=at_s, live=live)
        rss, files = page.total("process_resident_memory_bytes"), page.total("process_open_fds")
        return Sample(
            at_s=page.at_s,
            live=live,
            cpu_s=page.total("process_cpu_seconds_total"),
            rss_bytes=None if rss is None else int(rss),
            n_files=None if files is None else int(files),
        )

    async def scrape(self) -> Scrape | None:
        """Its metrics now; None, and `fault` says why, where they cannot be had."""
        try:
            text = await asyncio.to_thread(self._fetch)
        except (OSError, ValueError) as error:
            self.fault = f"no figures from {self._metrics_url}: {error}"
            return None
        return Scrape(at_s=time.monotonic() - self._began_s, values=read_page(text))

    def _fetch(self) -> str:
        request = urllib.request.Request(self._metrics_url, headers={"Authorization": f"Bearer {self._key}"} if self._key else {})
        with urllib.request.urlopen(request, timeout=SCRAPE_S, context=self._tls) as answer:
            text: str = answer.read().decode()
        return text


def _own(pid: int, at_s: float, live: int) -> Sample:
    used, folder = usage(pid), Path(f"/proc/{pid}")
    n_files: int | None = None
    n_threads: int | None = None
    if used is None:
        return Sample(at_s=at_s, live=live)
    try:
        n_files = len(list((folder / "fd").iterdir()))
        n_threads = len(list((folder / "task").iterdir()))
    except OSError:  # another user's process, or one that has just ended
        pass
    return Sample(
        at_s=at_s,
        live=live,
        cpu_s=used.cpu_s,
        workers_cpu_s=used.children_cpu_s,
        rss_bytes=used.rss_bytes,
        n_files=n_files,
        n_threads=n_threads,
    )


def read_page(text: str) -> dict[str, dict[str, float]]:
    """A page in Prometheus' text format: name -> labels joined as `a=x,b=y` ("" without) -> value."""
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in _LINE.findall(text):
        key = ",".join(f"{label}={worth}" for label, worth in _LABEL.findall(labels))
        found.setdefault(name, {})[key] = float(value)
    return found


def quantile_ms(before: Scrape, after: Scrape, name: str, share: float) -> float | None:
    """A quantile of a histogram (seconds) between two scrapes, in milliseconds: the upper edge of its bucket; None without values."""
    then, now = before.values.get(f"{name}_bucket", {}), after.values.get(f"{name}_bucket", {})
    counts: dict[float, float] = defaultdict(float)  # over all series of the name: a gateway of several workers has one for each
    for key, n in now.items():
        counts[float(key.partition("le=")[2].partition(",")[0])] += n - then.get(key, 0.0)
    edges = sorted(counts.items())
    if not edges or edges[-1][1] <= 0:
        return None
    finite = [edge for edge, _ in edges if edge != float("inf")]
    found = next(edge for edge, n in edges if n >= share * edges[-1][1])
    return (found if found != float("inf") else finite[-1]) * 1000


def thinned(samples: list[Sample]) -> list[Sample]:
    """At most `POINTS` of them, evenly, with the first and the last."""
    if len(samples) <= POINTS:
        return samples
    return [samples[round(n * (len(samples) - 1) / (POINTS - 1))] for n in range(POINTS)]
