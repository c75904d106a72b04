"""Measures the sentence splitter on a folder with gold-segmented texts (`dev.jsonl`) and their scorer (`score.py`).

    python -m tests.load.segmentation_bench FOLDER

Prints the scorer's table for whole sentences and for the early first segment, speed beside a one-set splitter in the same run,
cost per delta, growth with length, memory on text that never closes, and the punctuation hit rate: ours, and that of a
perfect segmentation. Figures depend on the machine; compare ratios.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from gateway.speech.segmenter import Segmenter, SegmentOptions, for_language, for_language_early
from gateway.speech.segmenter.ending import ending_of
from gateway.speech.stream import SpeechStream, SpokenSegment

ROUNDS = 5
Item = dict[str, Any]  # a line of the data file: id, lang, text, bounds, ...


class Splitter(Protocol):
    def feed(self, text: str) -> list[Any]: ...  # str or Segment
    def flush(self) -> list[Any]: ...


class NaiveSplitter:
    """Cuts at every mark of one set: the floor of what a splitter costs."""

    MARKS = frozenset("。！？;.!?；")

    def __init__(self, language: str) -> None:
        self._buffer = ""

    def feed(self, text: str) -> list[str]:
        out = []
        for char in text:
            self._buffer += char
            if char in self.MARKS:
                out.append(self._buffer)
                self._buffer = ""
        return out

    def flush(self) -> list[str]:
        rest, self._buffer = self._buffer, ""
        return [rest] if rest else []


def load_scorer(folder: Path) -> Any:  # the scorer is a script beside the data, not a package
    spec = importlib.util.spec_from_file_location("score", folder / "score.py")
    if spec is None or spec.loader is None or not (folder / "score.py").is_file():
        raise SystemExit(f"{folder}: expected a folder with score.py and dev.jsonl")
    scorer = importlib.util.module_from_spec(spec)
    sys.modules["score"] = scorer
    spec.loader.exec_module(scorer)
    return scorer


def cpu_seconds(work: Callable[[], object]) -> float:
    """The best of some rounds: noise only ever adds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def split_all(factory: Callable[[str], Splitter], items: list[Item], chunks: list[list[str]]) -> None:
    for item, pieces in zip(items, chunks, strict=True):
        splitter = factory(item["lang"])
        for piece in pieces:
            splitter.feed(piece)
        splitter.flush()


def print_speed(scorer: Any, items: list[Item]) -> None:
    chars = sum(len(item["text"]) for item in items)
    singles = [list(item["text"]) for item in items]
    tokens = [scorer.chunk(item["text"], "token") for item in items]
    print(f"\n{chars} characters in {len(items)} texts, one-character deltas:")
    naive = cpu_seconds(lambda: split_all(NaiveSplitter, items, singles))
    factories: list[tuple[str, Callable[[str], Splitter]]] = [
        ("naive one-set", NaiveSplitter),
        ("whole sentences, raw text", for_language),
        ("early first, raw text", for_language_early),
        ("segmenter alone", Segmenter),
    ]
    for name, factory in factories:
        seconds = cpu_seconds(lambda factory=factory: split_all(factory, items, singles))  # type: ignore[misc]  # bound per turn
        print(f"  {name:28s} {chars / seconds / 1000:8.0f} k characters/s   1/{seconds / naive:.1f} of naive")
    n_tokens = sum(map(len, tokens))
    print(f"token-like deltas ({chars / n_tokens:.1f} characters each), cost per delta:")
    for name, factory in (factories[3], factories[1]):
        seconds = cpu_seconds(lambda factory=factory: split_all(factory, items, tokens))  # type: ignore[misc]  # bound per turn
        print(f"  {name:28s} {seconds / n_tokens * 1e6:8.2f} us")
    seconds = cpu_seconds(lambda: [speak(item["lang"], pieces) for item, pieces in zip(items, tokens, strict=True)])
    print(f"  {'stream with normaliser':28s} {seconds / n_tokens * 1e6:8.2f} us")


def speak(language: str, pieces: Iterable[str], options: SegmentOptions | None = None) -> list[SpokenSegment]:
    stream = SpeechStream(language=language, options=options or SegmentOptions())
    out = [segment for piece in pieces for segment in stream.feed(piece).segments]
    return [*out, *stream.flush().segments]


def print_growth() -> None:
    print("\ngrowth with length, one feed of:")
    unit = 'He said "hi there, my friend" to Dr. Smith at 3.14 p.m. Then 他说：“好的。”走了。\n'
    for size in (10_000, 100_000, 1_000_000):
        text = unit * (size // len(unit))
        start = time.process_time()
        splitter = for_language("en")
        splitter.feed(text)
        splitter.flush()
        seconds = time.process_time() - start
        print(f"  {len(text):9d} characters  {seconds / len(text) * 1e6:6.2f} us/character")
    print("memory held after 200 k characters that never close:")
    for name, opener in [("quote", '"Well. '), ("bracket", "(see "), ("fence", "```\n"), ("inline code", "`x "), ("reasoning", "<think>")]:
        speak("en", ["It costs $20 on 3 May. 你好 20元。"])  # loads what is loaded on first use
        tracemalloc.start()
        stream = SpeechStream(language="en")
        stream.feed(opener)
        for _ in range(10_000):
            stream.feed("and so on it goes.\n" if name == "fence" else "and so on it goes. ")
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"  {name:12s} {held / 1024:8.1f} KiB")


def print_hit_rate(items: list[Item]) -> None:
    print("\npunctuation hit rate (share of segments but early first ones that end in a stop or newline):")
    for group in ("en", "zh", "other", "all"):
        chosen = [item for item in items if group == "all" or (item["lang"] if item["lang"] in ("en", "zh") else "other") == group]
        perfect = [hits for item in chosen for hits in gold_endings(item)]
        ours = [
            segment.ends in ("stop", "newline")
            for item in chosen
            for segment in speak(item["lang"], item["text"])
            if not (segment.index == 0 and segment.cut in ("clause", "length"))
        ]
        rates = f"perfect segmentation {statistics.mean(perfect):.3f}   ours {statistics.mean(ours):.3f}"
        print(f"  {group:6s} {rates}   ({len(ours)} segments)")


def gold_endings(item: Item) -> list[bool]:
    edges = [0, *item["bounds"], len(item["text"])]
    parts = [item["text"][start:end] for start, end in pairwise(edges)]
    follows = [item["text"][end : end + 2].lstrip(" ")[:1] for end in edges[1:]]
    return [
        ending_of(part + ("\n" if after == "\n" else ""), item["lang"]) in ("stop", "newline")
        for part, after in zip(parts, follows, strict=True)
        if part.strip()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with dev.jsonl and score.py")
    parser.add_argument("--data", default="dev.jsonl", help="file of gold-segmented texts in the folder")
    arguments = parser.parse_args()
    scorer = load_scorer(arguments.folder)
    items = scorer.load(arguments.folder / arguments.data)
    for name, factory in [("whole sentences", for_language), ("early first segment", for_language_early)]:
        rows, _ = scorer.evaluate(factory, items)
        scorer.show(rows, name)
    print_speed(scorer, items)
    print_growth()
    print_hit_rate(items)


if __name__ == "__main__":
    main()
