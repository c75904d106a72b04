"""The command: arguments to a plan, the gateway where none is named, and the report in its forms."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import structs

from gateway.bench.command import between, check_writable, find_pid, insecure_context, run_loop
from gateway.bench.own_gateway import own_gateway
from gateway.bench.scenario import QUESTIONS
from gateway.client import ConversationError
from gateway.load import limits
from gateway.load import report as reports
from gateway.load.crews import how_many
from gateway.load.load import Load, Order
from gateway.load.microphone import from_wav
from gateway.load.page import as_html
from gateway.load.plan import MOST_GUESTS, Mix, Plan, visits
from gateway.load.text import as_text

OK, BROKEN, WRONG_USE, ABSENT = 0, 1, 2, 3
# Of the load's own gateway; the environment may change them. A voice three times as fast as speech lets frames run ahead of the
# listener, so that a late one is one that a listener would miss. Nobody is refused for being one too many: where it breaks is asked.
OWN_SETTINGS = {
    "STRETTO_SERVER__DEBUG_STAMPS": "true",
    "STRETTO_SERVER__DRAIN_S": "1.0",
    "STRETTO_FAKE__TTFT_MS": "50.0",
    "STRETTO_FAKE__ITL_MS": "20.0",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "60.0",
    "STRETTO_FAKE__TTS_RTF": "0.3",
    "STRETTO_SHEDDING__LAG_MS": "0",
    "STRETTO_LOG__LEVEL": "warning",
}
EARS = {"STRETTO_ASR__ENGINE": "fake", "STRETTO_LISTEN__VAD": "fake", "STRETTO_LISTEN__END_OF_TURN": "fake"}
DRAIN_S = "120.0"
SPARE = 8  # places beyond the guests, and a tenth of them: a line that comes back may be there before its old one is found dead


def add_arguments(parser: argparse.ArgumentParser) -> None:
    guests = parser.add_argument_group("who comes, and when")
    guests.add_argument("-n", "--talkers", default="10", metavar="N[,N...]", help="guests at once; several: one step after the other (10)")
    guests.add_argument("--curve", choices=["steps", "ramp", "poisson"], default="steps", help="how they arrive (default steps)")
    guests.add_argument("--step", type=float, default=20.0, metavar="S", help="length of a step (default 20 s)")
    guests.add_argument("--settle", type=float, default=5.0, metavar="S", help="of it for arrivals, without figures (default 5 s)")
    guests.add_argument("--seconds", type=float, default=60.0, metavar="S", help="length of a ramp or of Poisson arrivals (default 60 s)")
    guests.add_argument("--rate", type=float, default=1.0, metavar="R", help="Poisson arrivals a second (default 1)")
    guests.add_argument("--turns", type=between(1, 100_000), default=100_000, help="turns of a visit at most")
    guests.add_argument("--again", action="store_true", help="whoever has had them comes back for a new conversation, until the end")
    doing = parser.add_argument_group("what they do (shares from 0 to 1)")
    doing.add_argument("--think", type=float, default=1.0, metavar="S", help="mean pause before a question (default 1 s)")
    doing.add_argument("--spoken", type=_share, default=0.0, help="guests who speak instead of typing")
    doing.add_argument("--listeners", type=_share, default=0.0, help="guests who only stay connected")
    doing.add_argument("--slow", type=_share, default=0.0, help="typing guests who stop reading for a while in each reply")
    doing.add_argument("--slow-seconds", type=float, default=3.0, metavar="S", help="how long they do (default 3 s)")
    doing.add_argument("--barge-in", type=_share, default=0.0, help="turns that are talked over")
    doing.add_argument("--drop", type=_share, default=0.0, help="turns whose socket is cut; the guest comes back and resumes")
    doing.add_argument("--speech", type=Path, metavar="WAV", help="what spoken guests say, 16-bit mono; default: a hum, for scripted ears")
    doing.add_argument("--language", choices=sorted(QUESTIONS), default="en")
    doing.add_argument("--text-only", action="store_true", help="ask for text alone")
    doing.add_argument("--seed", type=int, default=0, help="another seed, other guests")
    where = parser.add_argument_group("where")
    where.add_argument("--url", help="a running gateway; without it: one of the load's own, with --engines")
    where.add_argument("--engines", choices=["fake"], default="fake", help="of the load's own gateway (scripted: no model runs)")
    where.add_argument("--key", default=os.environ.get("STRETTO_KEY"), help="its key; default: the variable STRETTO_KEY")
    where.add_argument("--insecure", action="store_true", help="accept a self-signed certificate (wss://)")
    where.add_argument("--pid", type=int, help="the gateway's process, for CPU and memory; found by itself on this machine")
    where.add_argument("--clients", type=between(1, 64), help="client processes (default: one for 250 guests, at most one a core)")
    ends = parser.add_argument_group("what else happens, and what comes out")
    ends.add_argument("--knocks", type=between(1, 10_000), default=0, metavar="N", help="N more connections while the house is full")
    ends.add_argument("--drain", action="store_true", help="SIGTERM to the load's own gateway while everybody talks")
    ends.add_argument("--limits", type=Path, metavar="TOML", help="limits that make the load a test; exit code 1 names the broken ones")
    ends.add_argument("--json", metavar="FILE", help="everything as JSON")
    ends.add_argument("--html", metavar="FILE", help="one page with charts")


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"got {value:g}, expected a share from 0 to 1")
    return value


def run(args: argparse.Namespace) -> int:
    """Load and report."""
    try:
        plan = plan_of(args)
        bounds = limits.read(args.limits) if args.limits is not None else ()
        if args.speech is not None:
            from_wav(args.speech)
        check_writable(args.json, args.html)
    except (ValueError, limits.LimitsError) as error:
        return _complain(WRONG_USE, str(error))
    except OSError as error:
        return _complain(WRONG_USE, f"cannot write {error.filename}: {error.strerror}")
    if args.drain and args.url is not None:
        return _complain(WRONG_USE, "--drain stops the gateway: it goes with the load's own one, without --url")
    try:
        found = run_loop(_load(plan, args))
    except ConversationError as error:
        return _complain(ABSENT, str(error))
    found = structs.replace(found, verdicts=limits.judge(bounds, found))
    print(as_text(found))
    if args.json is not None:
        Path(args.json).write_text(reports.as_json(found) + "\n", "utf-8")
    if args.html is not None:
        Path(args.html).write_text(as_html(found), "utf-8")
    return OK if found.is_kept else BROKEN


def _complain(code: int, what: str) -> int:
    print(f"stretto load: {what}", file=sys.stderr)
    return code


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the arguments mean. Raises `ValueError` on one that cannot be carried out."""
    try:
        steps = tuple(int(part) for part in args.talkers.split(","))
    except ValueError:
        raise ValueError(f"--talkers: got {args.talkers!r}, expected numbers like 50,200,500") from None
    if not all(0 < n <= MOST_GUESTS for n in steps):
        raise ValueError(f"--talkers: got {args.talkers}, expected 1 to {MOST_GUESTS} each")
    for name, value in (("--step", args.step), ("--seconds", args.seconds), ("--rate", args.rate)):
        if value <= 0:
            raise ValueError(f"{name}: got {value:g}, expected more than 0")
    if not 0 <= args.settle < args.step:
        raise ValueError(f"--settle: got {args.settle:g} s, expected less than --step ({args.step:g} s)")
    for one, other in (("spoken", "listeners"), ("barge_in", "drop")):
        if getattr(args, one) + getattr(args, other) + (args.slow if one == "spoken" else 0) > 1:
            raise ValueError(f"the shares --{one.replace('_', '-')} and --{other} (and --slow) make more than 1 together")
    plan = Plan(
        curve=args.curve,
        steps=steps,
        step_s=args.step,
        settle_s=args.settle,
        seconds=args.seconds,
        rate_per_s=args.rate,
        turns=args.turns,
        again=args.again,
        think_s=max(0.0, args.think),
        mix=Mix(spoken=args.spoken, listeners=args.listeners, slow=args.slow),
        barge_in=args.barge_in,
        drop=args.drop,
        slow_s=args.slow_seconds,
        language=args.language,
        output="text" if args.text_only else "audio",
        seed=args.seed,
    )
    visits(plan)
    return plan


async def _load(plan: Plan, args: argparse.Namespace) -> reports.Report:
    async with AsyncExitStack() as stack:
        order = Order(
            plan=plan,
            url=args.url or "",
            key=args.key,
            tls=insecure_context(insecure=args.insecure),
            engines="those of the running gateway",
            n_crews=args.clients or how_many(plan.most),
            pid=args.pid,
            insecure=args.insecure,
            speech=str(args.speech or ""),
            n_knocks=args.knocks,
            drain=args.drain,
        )
        if args.url is None:
            places = plan.most if args.knocks else plan.most + plan.most // 10 + SPARE
            own = await stack.enter_async_context(own_gateway(places, settings=own_settings(args, places)))
            order = structs.replace(order, url=own.url, pid=own.pid, own=own, engines="fake, in the load's own gateway")
        elif order.pid is None:
            order = structs.replace(order, pid=await asyncio.to_thread(find_pid, args.url, order.tls))
        return await Load(order).run()


def own_settings(args: argparse.Namespace, places: int) -> dict[str, str]:
    """Settings of the load's own gateway: ours where the environment has none."""
    ours = OWN_SETTINGS | (EARS if args.spoken else {}) | ({"STRETTO_SERVER__DRAIN_S": DRAIN_S} if args.drain else {})
    return {name: os.environ.get(name, value) for name, value in ours.items()} | {"STRETTO_SESSION__MAX_SESSIONS": str(places)}
