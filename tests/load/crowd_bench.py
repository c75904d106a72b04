"""Many people who speak at once to the real ears of this machine (Whisper, Silero, smart-turn); a scripted model and voice answer.

Run: `python -m tests.load.crowd_bench [--people 100] [--rounds 6]`: two to three minutes, at most `rounds` times the recordings, the time
a final text has, and a reply. In each round everybody says a question at the same moment. Prints JSON: every utterance is understood or
its speaker told to say it again (`unanswered` must be 0); how evenly the understood ones fall on the people; who waits for the
recognizer, and memory, round by round; how late the event loop wakes, which the people share here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from engine.api import Ears
from engine.asr.whisper import Whisper
from engine.build_listening import build_ears
from engine.settings import AsrSettings, EngineSettings
from gateway.events import ErrorRaised, SpeechStarted, Transcribed, TurnDone, TurnStarted
from gateway.sessions import Sessions
from gateway.stalls import StallWatch
from gateway.turn import Parts
from tests.load.spoken_bench import SHORT, Bench, Client, admitting, cpu_s, quantiles, show
from tests.load.spoken_questions import CACHE, QUESTIONS, Said, recorded, spoken

SLACK_S = 30.0  # behind the time that a final text has: the pause that ends an utterance, and a machine that is late
LOOK_S = 0.05
STALL_S = 0.2  # beyond LOOK_S: from here on a late loop is asked where it is
PAGE = os.sysconf("SC_PAGE_SIZE")


class Outcomes(Struct):
    """What became of the utterances of one person, by `item_id`."""

    spoken: set[str] = set()
    understood: set[str] = set()
    empty: set[str] = set()
    told: dict[str, str] = {}
    waits_s: list[float] = []

    @property
    def unanswered(self) -> set[str]:
        return self.spoken - self.understood - self.empty - self.told.keys()


class Person(Client):
    """Says something, hears out what comes of it."""

    def __init__(self, sessions: Sessions) -> None:
        super().__init__(sessions)
        self.outcomes = Outcomes()

    def note(self) -> None:
        """What has arrived so far."""
        done = self.outcomes
        for _, event in self.arrived:
            match event:
                case SpeechStarted(item_id=str(item)):
                    done.spoken.add(item)
                case Transcribed(final=True, item_id=str(item)):
                    (done.understood if event.text else done.empty).add(item)
                case ErrorRaised(item_id=str(item)):
                    done.told[item] = event.code

    async def say(self, recording: Said, patience_s: float) -> None:
        """Returns when each utterance has its outcome and the reply is over, or after `patience_s`."""
        began_s = await self.speak(recording.pcm)
        deadline_s = asyncio.get_running_loop().time() + patience_s
        while asyncio.get_running_loop().time() < deadline_s:
            self.note()
            if self.outcomes.spoken and not self.outcomes.unanswered:
                break
            await asyncio.sleep(LOOK_S)
        final_s, text = self.final(began_s)
        if text:
            self.outcomes.waits_s.append(final_s - began_s - recording.end_s)
        if self.when(TurnStarted, began_s) is not None:
            await self.until(TurnDone, began_s, patience_s)


class Watch(Struct):
    """What is looked at while they speak."""

    late_s: list[float] = []
    most_waiting: int = 0
    latest_at: list[str] = []  # where the loop was when it woke latest

    async def run(self, recognizer: Whisper) -> None:
        now = asyncio.get_running_loop().time
        with StallWatch(STALL_S) as stalls:
            while True:
                due_s = now() + LOOK_S
                await asyncio.sleep(LOOK_S)
                late_s, stack = now() - due_s, stalls.beat()
                if stack is not None and late_s > max(self.late_s, default=0.0):
                    self.latest_at = stack[-3:]
                self.late_s.append(late_s)
                self.most_waiting = max(self.most_waiting, recognizer.n_waiting)


def jain(shares: Sequence[int]) -> float:
    """1 where all have the same, 1/n where one has everything. Source: Jain, Chiu, Hawe (1984), DEC-TR-301."""
    return round(sum(shares) ** 2 / max(1, len(shares) * sum(share**2 for share in shares)), 3)


def evenly(n: int, n_people: int) -> list[int]:
    """The fairest shares of so many."""
    return [n // n_people + (person < n % n_people) for person in range(n_people)]


def memory_mb(pids: Sequence[int]) -> int:
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/statm") as file:
            total += int(file.read().split()[1]) * PAGE
    return round(total / 2**20)


async def crowd(
    recordings: Sequence[Said], n_people: int, n_rounds: int, parts: Parts, recognizer: Whisper, pids: Sequence[int]
) -> dict[str, Any]:
    """Everybody speaks at the same time, waits for what comes of it, and speaks again with the others. Any: figures as JSON."""
    watch, rounds, patience_s = Watch(), [], parts.settings.hearing.final_s + SLACK_S
    began_s, used_s = asyncio.get_running_loop().time(), cpu_s(os.getpid())
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(parts, admitting(n_people))
        keeper = tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        people = [Person(sessions) for _ in range(n_people)]
        readers = [await person.open(tasks) for person in people]
        watching = tasks.create_task(watch.run(recognizer), name="watch")
        for turn in range(n_rounds):
            watch.most_waiting = 0
            async with asyncio.TaskGroup() as speaking:
                for n, person in enumerate(people):
                    speaking.create_task(person.say(recordings[(n + turn) % len(recordings)], patience_s), name=f"person {n}")
            understood = sum(len(person.outcomes.understood) for person in people)
            rounds.append({"understood": understood, "most_waiting": watch.most_waiting, "memory_mb": memory_mb(pids)})
        left = recognizer.n_waiting
        for task in (watching, *readers):
            task.cancel()
        sessions.stop()
        await asyncio.wait([keeper])
    done = [person.outcomes for person in people]
    shares = [len(one.understood) for one in done]
    late = sorted(watch.late_s)
    return {
        "people": n_people,
        "utterances": sum(len(one.spoken) for one in done),
        "understood": sum(shares),
        "heard_as_nothing": sum(len(one.empty) for one in done),
        "told": dict(Counter(code for one in done for code in one.told.values())),
        "unanswered": sum(len(one.unanswered) for one in done),
        "never_understood": shares.count(0),
        "shares": {
            "least": min(shares),
            "median": statistics.median(shares),
            "most": max(shares),
            "jain": jain(shares),
            "jain_at_best": jain(evenly(sum(shares), n_people)),
        },
        "text_ms": quantiles([wait for one in done for wait in one.waits_s]),
        "rounds": rounds,
        "waiting_at_the_end": left,
        "loop_late_ms": {**quantiles(late), "most": round(1000 * late[-1]), "latest_at": watch.latest_at},
        "cpu_of_a_core": round((cpu_s(os.getpid()) - used_s) / (asyncio.get_running_loop().time() - began_s), 2),
    }


async def bench(n_people: int, n_rounds: int) -> None:
    ears, note = build_ears(EngineSettings(cache_path=CACHE, asr=AsrSettings(engine="whisper")))
    if ears is None or ears.end_of_turn is None or not isinstance(ears.recognizer, Whisper):
        raise SystemExit(note)
    recordings = [*await spoken(QUESTIONS, by_all=False), *recorded()]
    await asyncio.gather(ears.recognizer.start(), ears.detector.start(), ears.end_of_turn.start())
    show("ears", {"are": note, "cores": os.cpu_count()})
    parts = await Bench(ears).parts(SHORT, drafts=False)
    show("crowd", await crowd(recordings, n_people, n_rounds, parts, ears.recognizer, processes(ears)))
    show("lost", {sample.name + str(sample.labels): sample.value for sample in lost(parts)})
    await asyncio.gather(ears.recognizer.close(), ears.detector.close(), ears.end_of_turn.close())


def processes(ears: Ears) -> list[int]:
    """This one, and those of the ears."""
    engines = (ears.recognizer, ears.detector, ears.end_of_turn)
    return [os.getpid(), *(pid for engine in engines if (pid := getattr(engine, "pid", None)) is not None)]


def lost(parts: Parts) -> list[Any]:  # Any: prometheus_client's samples
    """Audio that was dropped, and what failed in the ears."""
    counters = (parts.metrics.listening.audio_dropped, parts.metrics.listening.ear_errors)
    return [
        sample
        for counter in counters
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=100, help="who speak at once")
    parser.add_argument("--rounds", type=int, default=6, help="how often")
    asked = parser.parse_args()
    asyncio.run(bench(asked.people, asked.rounds))


if __name__ == "__main__":
    main()
