"""Our endpointing against plain silence timers, on utterances with pauses: who interrupts the speaker, and who keeps them waiting.

Run: `python -m tests.load.turn_ends_bench [--text-ms 450]`, some seconds. Texts and the pauses' places are written by hand
(`turn_ends.tsv`); smart-turn's scores and Whisper's readings are real (`turn_ends_heard.tsv`, made by `turn_ends_hearing`). Drawn is
how long a pause lasts: 300 to 1,600 ms by kind, 20 draws of each. A cut-in is a wait shorter than a pause, where words were understood
before it: without any nothing is answered. Half a is tuned on, b is reported, c is held out; each has texts, voices, recordings of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from gateway.config import EndpointingSettings
from gateway.endpointing import Reading, read, read_heard, wait_ms

HEARD = Path(__file__).with_name("turn_ends_heard.tsv")
PAUSE_MS = {"pause": (300, 1100), "hesitation": (500, 1600), "dictation": (350, 1200), "recorded": (300, 1100)}
RIVAL = " | "  # between two rivals of a text
ROUNDS = 20  # draws of each pause
FAST_TEXT_MS = 112.0  # of silence until the text is there: `likely_ms` and a recognizer that takes 80 ms


class Silence(Struct, frozen=True):
    """One silence: what was heard before it, and how sure the sound is that the speaker has finished."""

    half: str
    kind: str
    language: str
    voice: str
    is_end: bool
    score: float
    said: str
    text: str
    certainty: float | None
    rivals: tuple[str, ...]

    @property
    def reading(self) -> Reading:
        return read_heard(self.text, self.rivals, self.certainty)


Rule = Callable[[Silence], float]


def heard() -> list[Silence]:
    """All silences of the set."""
    found = []
    for line in HEARD.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            half, kind, language, voice, is_end, score, said, text, certainty, rivals = line.split("\t")
            known = float(certainty) if certainty else None
            others = tuple(rivals.split(RIVAL)) if rivals else ()
            found.append(Silence(half, kind, language, voice, is_end == "1", float(score), said, text, known, others))
    return found


def ours(text_ms: float = FAST_TEXT_MS) -> Rule:
    """The gateway's rule, where the text comes after so much silence."""
    settings = EndpointingSettings()
    return lambda s: max(wait_ms(settings, s.score, s.reading, read(s.text)), min(text_ms, settings.unsure_ms))


def timer(ms: float) -> Rule:
    return lambda s: ms


def judged(found: Sequence[Silence], rule: Rule, seed: int = 7) -> dict[str, float]:
    """Share of the pauses in which the speaker is interrupted, and how long they wait at their ends."""
    chance = random.Random(seed)
    n_pauses = n_cut_ins = 0
    for silence in found:
        if not silence.is_end:
            wait = rule(silence)
            n_pauses += ROUNDS
            n_cut_ins += sum(wait < chance.uniform(*PAUSE_MS[silence.kind]) and bool(silence.text) for _ in range(ROUNDS))
    waits = [rule(silence) for silence in found if silence.is_end]
    return {
        "ends": len(waits),
        "pauses": n_pauses // ROUNDS,
        "cut_ins_percent": round(100 * n_cut_ins / max(1, n_pauses), 1),
        "median_wait_ms": round(statistics.median(waits)),
        "mean_wait_ms": round(statistics.mean(waits)),
        "p90_wait_ms": round(statistics.quantiles(waits, n=10)[8]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text-ms", type=float, default=FAST_TEXT_MS, help="silence until the text is there; 450 on two cores")
    parser.add_argument("--wrong", metavar="HALF", help="print the silences of this half that are judged worst")
    asked = parser.parse_args()
    silences, settings = heard(), EndpointingSettings()
    rules: dict[str, Rule] = {
        "ours": ours(asked.text_ms),
        "by the sound alone": lambda s: wait_ms(settings, s.score, Reading.EMPTY),
        "by the words alone": lambda s: wait_ms(settings, None, s.reading),
        "without rivals and certainty": lambda s: max(wait_ms(settings, s.score, read(s.text)), asked.text_ms),
        "timer 500 ms": timer(500),
        "timer 800 ms": timer(800),
    }
    halves = sorted({silence.half for silence in silences})
    for half in halves:
        for name, rule in rules.items():
            print(json.dumps({"half": half, "rule": name, **judged([s for s in silences if s.half == half], rule)}))
    for half in halves:
        for kind in PAUSE_MS:
            for language in ("en", "zh"):
                found = [s for s in silences if (s.half, s.kind, s.language) == (half, kind, language)]
                if len(found) > 4:
                    print(json.dumps({"half": half, "kind": kind, "language": language, "rule": "ours", **judged(found, rules["ours"])}))
    if asked.wrong:
        ours_ms = rules["ours"]
        for s in sorted((s for s in silences if s.half == asked.wrong), key=lambda s: -ours_ms(s) if s.is_end else ours_ms(s)):
            what = f"{'end' if s.is_end else 'pause':5} {s.kind:10} {s.score:.2f} {s.reading:10}"
            print(f"{ours_ms(s):6.0f} {what} {s.said} | {s.text}")


if __name__ == "__main__":
    main()
