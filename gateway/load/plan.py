"""Who comes when and does what: a load plan and the visits it means. Pure; the same plan gives the same visits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from msgspec import Struct

Role = Literal["typed", "spoken", "listener", "slow"]
Curve = Literal["steps", "ramp", "poisson"]

MOST_VISITS = 20_000  # ports, memory of the client, and patience
MOST_GUESTS = 5_000
N_SLICES = 10  # of a ramp or of Poisson arrivals: points of their curves
_GOLDEN = 0.6180339887498949  # multiples of it modulo 1 fill the unit interval evenly: every hundred guests hold the mix


class Mix(Struct, frozen=True, kw_only=True):
    """Shares of the guests; the others type. A listener holds a session and says nothing; a slow reader stops reading in each reply."""

    spoken: float = 0.0
    listeners: float = 0.0
    slow: float = 0.0


class Plan(Struct, frozen=True, kw_only=True):
    """A load's bounds. `turns`: of each visit at most; `again`: whoever has had them comes back for a new one at once. `barge_in`, `drop`:
    shares of the turns. Times in seconds.

    steps: `steps` guests stand for `step_s` each; they arrive during its first `settle_s`, of which no figure is taken. ramp: from none
    to the last of `steps` in `seconds`. poisson: `rate_per_s` arrivals for `seconds`, each leaves after its turns.
    """

    curve: Curve = "steps"
    steps: tuple[int, ...] = (10,)
    step_s: float = 20.0
    settle_s: float = 5.0
    seconds: float = 60.0
    rate_per_s: float = 1.0
    turns: int = 100_000
    again: bool = False
    think_s: float = 1.0
    mix: Mix = Mix()
    barge_in: float = 0.0
    drop: float = 0.0
    slow_s: float = 3.0
    language: str = "en"
    output: Literal["audio", "text"] = "audio"
    seed: int = 0

    @property
    def total_s(self) -> float:
        """How long guests are let talk."""
        return self.step_s * len(self.steps) if self.curve == "steps" else self.seconds

    @property
    def most(self) -> int:
        """Guests at once at most; of Poisson arrivals, all that come."""
        return len(visits(self)) if self.curve == "poisson" else max(self.steps)


class Visit(Struct, frozen=True, kw_only=True):
    """One guest's stay, in seconds of the load."""

    number: int
    from_s: float
    until_s: float
    role: Role


class Window(Struct, frozen=True, kw_only=True):
    """A stretch of the load whose figures belong together."""

    label: str
    from_s: float
    until_s: float


def visits(plan: Plan) -> list[Visit]:
    """All stays, in the order of arrival. Raises `ValueError` when there are too many."""
    found: list[tuple[float, float, int]] = []
    for stay in _stays(plan):
        found.append(stay)
        if len(found) > MOST_VISITS:
            raise ValueError(f"more than {MOST_VISITS} visits; shorten the load or lower its rate")
    found.sort()
    return [
        Visit(number=n, from_s=at, until_s=until, role=role_of(plan.mix, guest + plan.seed)) for n, (at, until, guest) in enumerate(found)
    ]


def _stays(plan: Plan) -> Iterator[tuple[float, float, int]]:
    if plan.curve == "steps":
        yield from _step_stays(plan)
    elif plan.curve == "ramp":
        n = plan.steps[-1]
        yield from ((plan.seconds * guest / n, plan.seconds, guest) for guest in range(n))
    else:
        chance, at, guest = random.Random(plan.seed), 0.0, 0
        while (at := at + chance.expovariate(plan.rate_per_s)) < plan.seconds:
            yield at, plan.seconds, guest
            guest += 1


def _step_stays(plan: Plan) -> Iterator[tuple[float, float, int]]:
    """A guest stays while the steps are above its number; one that a lower step sends away comes anew with a higher one."""
    came: dict[int, float] = {}
    for step, (before, n) in enumerate(pairwise((0, *plan.steps))):
        start_s = step * plan.step_s
        for guest in range(n, before):
            yield came.pop(guest), start_s, guest
        for guest in range(before, n):
            came[guest] = start_s + plan.settle_s * (guest - before) / (n - before)
    yield from ((at, plan.total_s, guest) for guest, at in came.items())


def role_of(mix: Mix, guest: int) -> Role:
    """Of the n-th guest; the shares hold for every stretch of guests, not only for all."""
    share = (guest + 1) * _GOLDEN % 1.0
    roles: tuple[tuple[Role, float], ...] = (("spoken", mix.spoken), ("listener", mix.listeners), ("slow", mix.slow))
    for role, width in roles:
        if share < width:
            return role
        share -= width
    return "typed"


def windows(plan: Plan) -> list[Window]:
    """The steps after their arrivals, or equal slices of the time."""
    if plan.curve == "steps":
        return [
            Window(label=f"{n}", from_s=step * plan.step_s + plan.settle_s, until_s=(step + 1) * plan.step_s)
            for step, n in enumerate(plan.steps)
        ]
    length_s = plan.seconds / N_SLICES
    return [Window(label=f"{n * length_s:.0f} s", from_s=n * length_s, until_s=(n + 1) * length_s) for n in range(N_SLICES)]
