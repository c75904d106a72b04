"""What breaks, whom it concerns, and what must be seen of it; and the row that each fault leaves in the table."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from tests.chaos.crowd import Crowd, Person, Role

PATIENCE_S = 120.0  # for a recovery that takes a second or two; vLLM loads for twenty, and people think for forty between two turns
LOOK_S = 0.2
HANGING_S = 60.0  # after which a turn without an end hangs

Do = Callable[[], Awaitable[None]]
Concerns = Callable[[Person], bool]


class Fault(Struct, frozen=True, kw_only=True):
    """`begin` breaks something, `end` mends it where it does not mend itself, after `lasts_s`.

    `concerns`: who may be told of it, everybody else must not notice. `is_told`: whether those must be. `metric`: what counts it.
    `deadline_s`: of the gateway itself, before which it cannot know; what is told is counted from there, and told within `told_within_s`.
    `holds`: what must be so at its end; what is wrong, or "".
    """

    name: str
    begin: Do
    concerns: Concerns
    metric: str
    end: Do | None = None
    lasts_s: float = 1.0
    is_told: bool = True
    deadline_s: float = 0.0
    told_within_s: float = 1.0
    holds: Callable[[], str] = str


class Row(Struct, frozen=True, kw_only=True):
    """What came of a fault. `told_ms`: the slowest, None when nobody was told; `n_late`: of those told, later than the fault allows.
    `recovered_s`: from its end to the first answer to somebody concerned, None when not all of them got one. `wrong`: at its end.
    """

    name: str
    n_told: int
    told_ms: float | None
    n_late: int = 0
    n_disturbed: int
    recovered_s: float | None
    metric: str
    counted: float
    noticed: tuple[str, ...] = ()
    wrong: str = ""
    note: str = "(nothing to count)"

    def line(self) -> str:
        """For the table."""
        told = "-" if self.told_ms is None else f"{self.told_ms:.0f}"
        recovered = "NEVER" if self.recovered_s is None else f"{self.recovered_s:.1f}"
        counted = f"{self.metric} +{self.counted:g}" if self.metric else self.note
        return f"{self.name:44} {self.n_told:5} {told:>10} {self.n_late:5} {self.n_disturbed:9} {recovered:>10}  {counted}"


HEADER = f"{'fault':44} {'told':>5} {'after, ms':>10} {'late':>5} {'disturbed':>9} {'well in, s':>10}  counted"


def of(*roles: Role) -> Concerns:
    """Everybody of these kinds."""
    return lambda person: person.role in roles


def nobody(_: Person) -> bool:
    """It must not be noticed at all."""
    return False


async def strike(crowd: Crowd, fault: Fault, metrics_url: str) -> Row:
    """Let it happen, and wait until all are well again."""
    before = await counted(metrics_url, fault.metric)
    if fault.is_told:
        await crowd.somebody_waits([person for person in crowd.people if fault.concerns(person)], PATIENCE_S)
    from_s = crowd.now()
    await fault.begin()
    await asyncio.sleep(fault.lasts_s)
    if fault.end is not None:
        await fault.end()
    ended_s, wrong = crowd.now(), fault.holds()
    concerned = [person for person in crowd.people if fault.concerns(person)]
    await crowd.all_have(crowd.people, "ended", from_s, PATIENCE_S)  # what was said meanwhile is judged when it is over
    told = [s for s in crowd.seen(from_s, crowd.now(), "told", "lost") if any(s.who == person.number for person in concerned)]
    hurt = [person for person in concerned if not fault.is_told or any(s.who == person.number for s in told)]
    asked_s = ended_s if fault.is_told else from_s
    is_well = await crowd.all_have(hurt, "answered", asked_s, PATIENCE_S) is not None
    answers = [s for s in crowd.seen(from_s, crowd.now(), "answered") if s.asked_s >= asked_s and fault.concerns(crowd.people[s.who])]
    well_s = min((s.at_s for s in answers), default=ended_s)
    after = await grown(metrics_url, fault.metric, before)
    waits = [max(0.0, 1000 * (s.at_s - max(from_s, s.since_s) - fault.deadline_s)) for s in told]
    disturbed = [person for person in crowd.people if is_disturbed(person, fault, from_s, crowd.now())]
    return Row(
        name=fault.name,
        n_told=len({s.who for s in told}),
        told_ms=max(waits, default=None),
        n_late=len({s.who for s, wait_ms in zip(told, waits, strict=True) if wait_ms > 1000 * fault.told_within_s}),
        n_disturbed=len(disturbed),
        recovered_s=max(0.0, well_s - ended_s) if is_well else None,
        metric=fault.metric,
        counted=after - before,
        noticed=tuple(what_was_seen(person, from_s) for person in disturbed),
        wrong=wrong,
    )


def what_was_seen(person: Person, from_s: float) -> str:
    """For whoever has to find out why."""
    words = [
        f"{s.kind} {s.word} after {s.at_s - from_s:.1f} s, asked at {s.asked_s - from_s:.1f} s" for s in person.seen if s.at_s >= from_s
    ]
    return f"{person.role} {person.number}: {'; '.join(words[:6])}"


def is_disturbed(person: Person, fault: Fault, from_s: float, until_s: float) -> bool:
    """Told or cut although it is none of theirs; or, whoever they are, a turn that failed without a word, that hangs, or no turn since."""
    seen = [s for s in person.seen if from_s <= s.at_s <= until_s]
    told = {s.asked_s for s in seen if s.kind == "told"}
    silent = [s for s in seen if s.kind == "ended" and s.word != "completed" and s.asked_s not in told]
    hangs = person.asked_s is not None and until_s - person.asked_s > HANGING_S
    speaks = any(s.kind == "ended" and s.asked_s >= from_s for s in person.seen)
    return bool(silent) or hangs or not speaks or (not fault.concerns(person) and any(s.kind in ("told", "lost") for s in seen))


def verdicts(row: Row, fault: Fault, *, is_timed: bool = False) -> list[str]:
    """What is wrong with a row, whatever the machine's speed; and what came too late, where the machine has time (`is_timed`)."""
    wrong = []
    if fault.is_told and not row.n_told:
        wrong.append("nobody was told")
    if is_timed and row.n_late:
        wrong.append(f"{row.n_late} were told more than {fault.told_within_s:g} s after it (the slowest: {row.told_ms or 0:.0f} ms)")
    if row.wrong:
        wrong.append(row.wrong)
    if row.n_disturbed:
        wrong.append(f"{row.n_disturbed} others noticed: {row.noticed[0]}")
    if row.recovered_s is None:
        wrong.append("it did not recover")
    if fault.metric and row.counted <= 0:
        wrong.append(f"{fault.metric} did not count it")
    return [f"{fault.name}: {fault_text}" for fault_text in wrong]


class Found:
    """Rows, and what is wrong with them; `say` gets each as a line. `is_timed`: what comes too late is wrong, too."""

    def __init__(self, say: Callable[[str], None], *, is_timed: bool = False) -> None:
        self.rows: list[Row] = []
        self.wrong: list[str] = []
        self.is_timed = is_timed
        self.say = say

    async def play(self, people: Crowd, fault: Fault, metrics_url: str) -> None:
        """One fault."""
        row = await strike(people, fault, metrics_url)
        self.add(row, verdicts(row, fault, is_timed=self.is_timed))

    def add(self, row: Row, wrong: list[str]) -> None:
        self.rows.append(row)
        self.say(row.line())
        self.blame(wrong)

    def blame(self, wrong: Sequence[str]) -> None:
        """For what no row can hold."""
        self.wrong += wrong
        for line in wrong:
            self.say(f"  WRONG: {line}")


async def grown(url: str, metric: str, before: float) -> float:
    """What the metric has grown to; a worker that is started again counts that when it is there."""
    ends_at = time.monotonic() + PATIENCE_S
    while (now := await counted(url, metric)) <= before and metric and time.monotonic() < ends_at:
        await asyncio.sleep(LOOK_S)
    return now


async def counted(url: str, metric: str) -> float:
    """The sum of a metric over all its labels; NAME{part of the labels} takes those alone. 0 where the page is away."""
    if not metric:
        return 0.0
    name, _, labels = metric.rstrip("}").partition("{")
    try:
        page = await asyncio.to_thread(_fetch, url)
    except OSError:
        return 0.0
    found: Sequence[tuple[str, str]] = re.findall(rf"^{re.escape(name)}(\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
    return sum(float(value) for shown, value in found if labels in shown)


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
