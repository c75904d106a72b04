"""Limits in a TOML file make a load an acceptance test.

    [[limit]]
    figure = "first_audio.p99"   # milliseconds
    max = 600
    guests = 200                 # in the window of this step; without it: over the whole load

A figure is a path into the report's figures; `figures` lists those there are. One that was not measured breaks its limit.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.load.report import Report, Stretch, Verdict
from gateway.load.tally import COUNTS, TIMES

_POINTS = ("n", "p50", "p95", "p99", "max")


class LimitsError(Exception):
    """The file cannot be used; the message says what was got and what was expected."""


class Limit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bound on one figure. `guests`: the step it holds for."""

    figure: str
    max: float | None = None
    min: float | None = None
    guests: int | None = None


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: tuple[Limit, ...] = ()


def read(path: Path) -> tuple[Limit, ...]:
    """The file's limits. Raises `LimitsError`."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File).limit
    except OSError as error:
        raise LimitsError(f"cannot read the limits {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise LimitsError(f"{path}: {error}") from error
    if not found:
        raise LimitsError(f"{path}: no [[limit]] in it; expected at least one")
    for limit in found:
        try:
            check_limit(limit)
        except LimitsError as error:
            raise LimitsError(f"{path}: the limit on {limit.figure} {error}") from error
    return found


def check_limit(limit: Limit) -> None:
    """Whether it can be kept and broken. Raises `LimitsError`, whose message goes on from the limit's name."""
    if limit.max is None and limit.min is None:
        raise LimitsError("has neither max nor min; expected one of them")
    if limit.max is not None and limit.min is not None and limit.min > limit.max:
        raise LimitsError(f"can never be kept: got min {limit.min:g} above max {limit.max:g}")
    if limit.figure not in figures() and not limit.figure.startswith("errors."):
        near = get_close_matches(limit.figure, figures(), 2, 0.6)
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        known = ", ".join(sorted(figures()))
        raise LimitsError(f"names an unknown figure {limit.figure!r}; expected errors.CODE or one of {known}{advice}")
    if limit.guests is not None and limit.figure in _OF_THE_LOAD:
        raise LimitsError(f"is one of the whole load; got guests = {limit.guests}, expected none")


def figures() -> frozenset[str]:
    """Names that a limit may bound, but for `errors.CODE`."""
    timed = {f"{name}.{point}" for name in TIMES for point in _POINTS}
    return frozenset({*COUNTS, *timed, *_OF_A_STRETCH, *_OF_THE_LOAD})


def judge(limits: tuple[Limit, ...], report: Report) -> list[Verdict]:
    """Every limit against what was found."""
    verdicts = []
    for limit in limits:
        where = None if limit.guests is None else next((w for w in report.windows if w.label == str(limit.guests)), None)
        got = None if limit.guests is not None and where is None else _figure(limit.figure, report, where or report.whole)
        is_kept = got is not None and (limit.max is None or got <= limit.max) and (limit.min is None or got >= limit.min)
        place = "whole load" if limit.guests is None else f"{limit.guests} guests"
        verdicts.append(Verdict(figure=limit.figure, where=place, expected=_bounds(limit), got=got, is_kept=is_kept))
    return verdicts


def _bounds(limit: Limit) -> str:
    most = "" if limit.max is None else f"at most {limit.max:g}"
    least = "" if limit.min is None else f"at least {limit.min:g}"
    return ", ".join(filter(None, (least, most)))


def broken(verdict: Verdict) -> str:
    """A line that says which limit is broken, by what."""
    got = "nothing was measured" if verdict.got is None else f"got {verdict.got:.6g}"
    return f"limit broken: {verdict.figure} ({verdict.where}): {got}, expected {verdict.expected}"


_OF_A_STRETCH: dict[str, Callable[[Stretch], float | None]] = {
    "errors": lambda s: float(sum(s.errors.values())),
    "late_share": lambda s: s.late_share,
    "gateway.cpu": lambda s: s.gateway.cpu,
    "gateway.cpu_per_guest": lambda s: s.gateway.cpu_per_guest,
    "gateway.rss_mb": lambda s: s.gateway.rss_mb,
    "gateway.loop_lag_p99_ms": lambda s: s.gateway.loop_lag_p99_ms,
    "guests": lambda s: s.guests,
}
_OF_THE_LOAD: dict[str, Callable[[Report], float | None]] = {
    "rss_slope_kb_per_min": lambda r: r.rss_slope_kb_per_min,
    "files_slope_per_min": lambda r: r.files_slope_per_min,
    "knocks.refused": lambda r: None if r.knocks is None else float(r.knocks.refused),
    "knocks.p99": lambda r: None if r.knocks is None or r.knocks.times is None else r.knocks.times.p99,
    "drain.lost": lambda r: None if r.drain is None else float(r.drain.lost),
    "drain.open_turns": lambda r: None if r.drain is None else float(r.drain.open_turns),
    "drain.seconds": lambda r: None if r.drain is None else r.drain.seconds,
}


def _figure(name: str, report: Report, stretch: Stretch) -> float | None:
    if name in _OF_THE_LOAD:
        return _OF_THE_LOAD[name](report)
    if name in _OF_A_STRETCH:
        return _OF_A_STRETCH[name](stretch)
    if name in COUNTS:
        return float(stretch.counts.get(name, 0))
    if name.startswith("errors."):
        return float(stretch.errors.get(name.removeprefix("errors."), 0))
    series, _, point = name.rpartition(".")
    summary = stretch.times.get(series)
    return None if summary is None else float(getattr(summary, point))
