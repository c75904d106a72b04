"""Our endpointing against plain silence timers, on utterances with pauses: who interrupts the speaker, and who keeps them waiting.

Run: `python -m tests.load.turn_ends_bench`. Texts and pauses' places are written by hand (`turn_ends.tsv`); how long a pause lasts, which
mark a recognizer puts behind a half sentence, and the end-of-turn score are drawn: pauses 300 to 1,600 ms by kind; scores as good as
smart-turn v3.2 was measured on clips (9 of 11 ends and 7 of 11 cuts on the right side of 0.5). A cut-in is a wait shorter than a pause.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from gateway.config import EndpointingSettings
from gateway.endpointing import read, wait_ms

SET = Path(__file__).with_name("turn_ends.tsv")
PAUSE_MS = {"pause": (300, 1100), "hesitation": (500, 1600), "dictation": (350, 1200)}
MARKS = ("", "", "", ".", ".", ",", "...")  # of a half sentence; a recognizer guesses
ROUNDS = 20  # draws of each utterance


class Silence(Struct, frozen=True):
    """One silence: the text before it, the score, and its length where the speaker goes on."""

    half: str
    kind: str
    language: str
    text: str
    score: float
    pause_ms: float | None


def silences(chance: random.Random) -> Iterator[Silence]:
    for line in SET.read_text("utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        kind, language, half, said = line.split("\t")
        parts = said.split(" / ")
        for n, _ in enumerate(parts, 1):
            text = ("" if language == "zh" else " ").join(parts[:n])
            is_end = n == len(parts)
            if not is_end:
                text = text.rstrip(" ,，.。") + chance.choice(MARKS)
            pause = None if is_end else chance.uniform(*PAUSE_MS[kind])
            yield Silence(half, kind, language, text, drawn_score(chance, is_end=is_end), pause)


def drawn_score(chance: random.Random, *, is_end: bool) -> float:
    if chance.random() < (9 / 11 if is_end else 4 / 11):
        return chance.uniform(0.5, 1.0) if not is_end else min(1.0, 0.5 + 0.5 * chance.random() ** 0.5)
    return chance.uniform(0.0, 0.5)


def judged(found: list[Silence], wait: Callable[[Silence], float]) -> dict[str, float]:
    pauses = [s for s in found if s.pause_ms is not None]
    cut_ins = sum(wait(s) < s.pause_ms for s in pauses if s.pause_ms is not None)
    waits = [wait(s) for s in found if s.pause_ms is None]
    return {
        "cut_ins_percent": round(100 * cut_ins / max(1, len(pauses)), 1),
        "median_wait_ms": round(statistics.median(waits)),
        "p90_wait_ms": round(statistics.quantiles(waits, n=10)[8]),
    }


def main() -> None:
    settings = EndpointingSettings()
    rules: dict[str, Callable[[Silence], float]] = {
        "ours": lambda s: wait_ms(settings, s.score, read(s.text)),
        "ours without a score": lambda s: wait_ms(settings, None, read(s.text)),
        "timer 500 ms": lambda s: 500.0,
        "timer 800 ms": lambda s: 800.0,
    }
    chance = random.Random(7)
    drawn = [silence for _ in range(ROUNDS) for silence in silences(chance)]
    n_utterances = sum(s.pause_ms is None for s in drawn) // ROUNDS
    print(json.dumps({"utterances": n_utterances, "pauses": sum(s.pause_ms is not None for s in drawn) // ROUNDS, "draws_of_each": ROUNDS}))
    for half in ("a", "b"):
        for name, rule in rules.items():
            print(json.dumps({"half": half, "rule": name, **judged([s for s in drawn if s.half == half], rule)}))
    for kind in PAUSE_MS:
        figures = judged([s for s in drawn if s.half == "b" and s.kind == kind], rules["ours"])
        print(json.dumps({"half": "b", "kind": kind, "rule": "ours", **figures}))


if __name__ == "__main__":
    main()
