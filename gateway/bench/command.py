"""The command: arguments, the order of a bench, and its report.

Order: one warm-up conversation; memory before; all talkers connect and stand idle; memory after; then they talk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
import time
import urllib.request
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gateway.bench import backends
from gateway.bench import report as reports
from gateway.bench.measuring import Tally, own_cpu_s, usage
from gateway.bench.own_gateway import own_gateway
from gateway.bench.scenario import QUESTIONS, Plan, lines, start_s
from gateway.bench.talker import Talker
from gateway.client import ConnectFailed, ConversationError, connect
from gateway.client.conversation import DEFAULT_URL
from gateway.client.dialing import LOOPBACK
from gateway.config import ConfigError
from gateway.events import AudioFrame, StartSession, TurnDone

OK, TURNS_FAILED, WRONG_USE, ABSENT = 0, 1, 2, 3
SETTLE_S = 2.0  # after connecting: what a session allocates late is allocated by then
CONNECT_AT_ONCE = 20  # a gateway's accept queue is not what this bench measures
ENOUGH_FOR_MEMORY = 20  # with fewer, the allocator's page steps are all there is to see
_T = TypeVar("_T")
OUR_MAXIMUM = 2000  # file descriptors, ports, and one core


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--conversations", type=between(1, OUR_MAXIMUM), default=1, metavar="N", help="talkers (default 1)")
    parser.add_argument("--seconds", type=float, default=30.0, help="begin no turn after this time (default 30)")
    parser.add_argument("--turns", type=between(1, 100_000), default=20, help="turns of each conversation at most (default 20)")
    parser.add_argument("--think", type=float, default=1.0, metavar="S", help="mean pause before each question (default 1 s)")
    parser.add_argument("--ramp", type=float, default=5.0, metavar="S", help="spread the beginnings over this time (default 5 s)")
    parser.add_argument("--language", choices=sorted(QUESTIONS), default="en")
    parser.add_argument("--text-only", action="store_true", help="ask for text alone")
    parser.add_argument("--engines", choices=["running", "fake"], default="running", help="fake: start an own gateway without models")
    parser.add_argument("--backends", metavar="A,B", help="compare [backends.A] and [backends.B] of --config, each behind an own gateway")
    parser.add_argument("--config", type=Path, help="settings file with the sections of --backends")
    parser.add_argument("--url", default=DEFAULT_URL, help="the gateway (default %(default)s)")
    parser.add_argument("--key", default=os.environ.get("STRETTO_KEY"), help="its key; default: the variable STRETTO_KEY")
    parser.add_argument("--insecure", action="store_true", help="accept a self-signed certificate (wss://)")
    parser.add_argument("--pid", type=int, help="the gateway's process, for CPU and memory; found by itself on this machine")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="figures as JSON into FILE, or instead of the table")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other questions and pauses")


def between(low: int, high: int) -> Any:  # Any: argparse takes any callable as a type
    """An argument's type: a whole number within bounds."""

    def number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"got {value}, expected {low} to {high}")
        return value

    return number


def run(args: argparse.Namespace) -> int:
    """Bench and print."""
    plan = Plan(
        n_talkers=args.conversations,
        seconds=args.seconds,
        turns=args.turns,
        think_s=args.think,
        ramp_s=min(args.ramp, args.seconds / 2),
        language=args.language,
        output="text" if args.text_only else "audio",
        seed=args.seed,
    )
    try:
        check_writable(None if args.json == "-" else args.json)
        if args.backends is not None:
            return _compare(plan, args)
        found = run_loop(_bench(plan, args))
    except OSError as error:
        print(f"stretto bench: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        print("stretto bench: stopped before its end; there are no figures", file=sys.stderr)
        raise
    except ConversationError as error:
        print(f"stretto bench: {error}", file=sys.stderr)
        return ABSENT
    if args.json == "-":
        print(reports.as_json(found))
    else:
        print(reports.as_text(found))
        if args.json is not None:
            Path(args.json).write_text(reports.as_json(found) + "\n", "utf-8")
    return TURNS_FAILED if found.n_failed or not found.n_turns else OK


def check_writable(*paths: str | None) -> None:
    """Before minutes of measuring: whether the figures can be kept. Raises `OSError` that names the file."""
    for path in map(Path, filter(None, paths)):
        was_there = path.exists()
        with path.open("a", encoding="utf-8"):
            pass
        if not was_there:
            path.unlink()


def _compare(plan: Plan, args: argparse.Namespace) -> int:
    """Bench each backend with the same script, one after the other, and print them side by side."""
    try:
        compared = backends.read(args.config, args.backends.split(","))
    except ConfigError as error:
        print(f"stretto bench: {error}", file=sys.stderr)
        return WRONG_USE
    rows = run_loop(backends.compare(compared, plan, measure))
    if args.json is not None:
        text = backends.as_json(rows)
        print(text) if args.json == "-" else Path(args.json).write_text(text + "\n", "utf-8")
    if args.json != "-":
        print(backends.as_text(rows))
    return TURNS_FAILED if any(row.fault is not None or row.report is None or row.report.n_failed for row in rows) else OK


def run_loop(main: Coroutine[Any, Any, _T]) -> _T:  # Any: Coroutine's own unused parameters
    """Run to the end on uvloop, which leaves more of the core to what is measured."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def _bench(plan: Plan, args: argparse.Namespace) -> reports.Report:
    async with AsyncExitStack() as stack:
        if args.engines == "fake":
            gateway = await stack.enter_async_context(own_gateway(plan.n_talkers))
            _announce(plan)
            return await measure(plan, gateway.url, args.key, gateway.pid, "fake, in the bench's own gateway")
        tls = insecure_context(insecure=args.insecure)
        pid = args.pid or await asyncio.to_thread(find_pid, args.url, tls)
        _announce(plan)
        return await measure(plan, args.url, args.key, pid, "those of the running gateway", tls)


def _announce(plan: Plan) -> None:
    wait = f"talking for {plan.seconds:.0f} s and until the last reply has been heard"
    print(f"stretto bench: {plan.n_talkers} conversation(s), {wait}; then come the figures", file=sys.stderr)


async def measure(
    plan: Plan, url: str, key: str | None, pid: int | None, engines: str, tls: ssl.SSLContext | None = None
) -> reports.Report:
    """Run `plan` against the gateway at `url`. Raises `ConnectFailed`, `Refused` before the first turn; later faults are counted."""
    start = StartSession(language=plan.language, output="text" if plan.output == "text" else "audio")
    await _warm_up(url, key, start, tls)
    tally = Tally()
    talkers = [Talker(url, key, start, tally, is_sampled=n == 0, tls=tls) for n in range(plan.n_talkers)]
    empty = usage(pid) if pid else None
    try:
        for first in range(0, len(talkers), CONNECT_AT_ONCE):
            await _all(talker.open() for talker in talkers[first : first + CONNECT_AT_ONCE])
        await asyncio.sleep(SETTLE_S)
        before, bench_cpu_s, began_s = (usage(pid) if pid else None), own_cpu_s(), time.monotonic()
        until_s = began_s + plan.seconds
        await _all(_talk_later(talker, plan, n, until_s) for n, talker in enumerate(talkers))
        after, wall_s = (usage(pid) if pid else None), time.monotonic() - began_s
        bench_cpu_s = own_cpu_s() - bench_cpu_s
    finally:
        for talker in talkers:
            talker.close()
    is_enough = plan.n_talkers >= ENOUGH_FOR_MEMORY
    idle_bytes = (before.rss_bytes - empty.rss_bytes) / plan.n_talkers if before and empty and is_enough else None
    return reports.Report(
        url=url,
        engines=engines,
        plan=plan,
        machine=reports.machine(),
        n_turns=tally.n_turns,
        n_failed=tally.n_failed,
        faults=tally.faults,
        mean_talking=sum(talker.busy_s for talker in talkers) / wall_s,
        times=reports.times_of(tally),
        load=reports.load_of(wall_s, before, after, bench_cpu_s, idle_bytes),
        wire_bytes=tally.wire_bytes,
        wire_share_of_json=tally.wire_sample_bytes / tally.json_sample_bytes if tally.json_sample_bytes else None,
        n_frames=tally.n_frames,
        n_audio_frames=tally.n_audio_frames,
        tokens=reports.tokens_of(tally),
    )


async def _all(works: Any) -> None:  # Any: an iterable of coroutines of whatever result
    """Do all at once; the first failure ends the others and comes out unwrapped."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for n, work in enumerate(works):
                tasks.create_task(work, name=f"talker {n}")
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _talk_later(talker: Talker, plan: Plan, n: int, until_s: float) -> None:
    await asyncio.sleep(start_s(plan, n))
    await talker.talk(lines(plan, n), until_s)


async def _warm_up(url: str, key: str | None, start: StartSession, tls: ssl.SSLContext | None) -> None:
    """The beginning of a turn that nobody counts: first calls load code and fill caches."""
    async with connect(url, key=key, start=start, tls=tls) as conversation:
        reply = await conversation.text("Hello.")
        async for event in reply:
            if isinstance(event, AudioFrame) and event.pts_ms == 0:  # once: more frames may be under way
                await conversation.cancel(reply.turn)
            if isinstance(event, TurnDone) and event.status == "failed":
                raise ConversationError("the warm-up turn failed; see the gateway's log")


def insecure_context(*, insecure: bool) -> ssl.SSLContext | None:
    """What accepts a self-signed certificate, where that is asked for."""
    if not insecure:
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def find_pid(url: str, tls: ssl.SSLContext | None = None) -> int | None:
    """The gateway's process by its own word (`/healthz`), when it runs on this machine."""
    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK:
        return None
    try:
        scheme = "https" if parts.scheme == "wss" else "http"
        with urllib.request.urlopen(f"{scheme}://{parts.netloc}/healthz", timeout=5, context=tls) as response:
            pid = json.load(response).get("pid")
    except (OSError, ValueError) as error:
        raise ConnectFailed(_unreachable(url, getattr(error, "reason", error)), retryable=True) from error
    return pid if isinstance(pid, int) else None


def _unreachable(url: str, reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        fault = f"the certificate of {url} is not trusted here ({reason.verify_message})"
        return f"{fault}; a self-signed one has to be accepted (--insecure)"
    why = getattr(reason, "strerror", None) or reason
    return f"nothing listens at {url} ({why})\nIs it running? `make serve` starts one here; --url names another, --engines fake needs none."
