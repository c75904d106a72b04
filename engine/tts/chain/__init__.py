"""Several voice engines behind one promise: the voice that was asked for, and those that step in when it fails.

Speaks a text to its end through whatever fails: what was said is never said again, what was not is. Tells each change of voice in
`SpeechChunk.voice` and to an observer. The decisions are `rule.py`'s; here is only the waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from engine.api import (
    EngineError,
    Expectant,
    Health,
    SpeechChunk,
    SpeechCut,
    Synthesis,
    Synthesizer,
    Voice,
    VoiceUnavailable,
)
from engine.observer import VoiceObserver
from engine.tts.chain.breaker import BreakerSettings
from engine.tts.chain.progress import Progress
from engine.tts.chain.rest import USUAL_MS_PER_UNIT, divide
from engine.tts.chain.rule import Breakers, Candidate, Failure, Plan
from engine.tts.script import primary, speakable
from engine.tts.style import VoiceManner, resolve
from engine.tts.voice_table import EMPTY, VoiceTable

LONGEST_PART = 500  # characters in one request: every engine takes that, and a fault costs no more


class Silent:
    """An observer that does nothing."""

    def on_voice_fault(self, engine: str, kind: str, rests: bool) -> None: ...
    def on_voice_change(self, asked: str, spoken_by: str) -> None: ...


class VoiceChain:
    """Engines in order of preference. Raises `EngineSetupError` where two engines have one name."""

    def __init__(
        self,
        engines: Sequence[Synthesizer],
        table: VoiceTable = EMPTY,
        settings: BreakerSettings = BreakerSettings(),  # noqa: B008  # frozen
        observer: VoiceObserver | None = None,
    ) -> None:
        self._engines = {engine.name: engine for engine in engines}
        self._table = table
        self._breakers = Breakers(list(self._engines), settings)
        self.observer: VoiceObserver = observer or Silent()
        self._pace: dict[str, float] = {}  # learned milliseconds per unit, by voice

    @property
    def name(self) -> str:
        return next(iter(self._engines))

    def observe(self, observer: VoiceObserver) -> None:
        self.observer = observer

    async def start(self) -> None:
        """All of them side by side. Raises the first one's error, and leaves none of the others at it."""
        try:
            async with asyncio.TaskGroup() as starts:
                for name, engine in self._engines.items():
                    starts.create_task(engine.start(), name=f"start {name}")
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))

    def health(self) -> Health:
        """Ready when one of them is."""
        healths = {name: engine.health() for name, engine in self._engines.items()}
        return Health(ready=any(each.ready for each in healths.values()), detail="; ".join(f"{n}: {h.detail}" for n, h in healths.items()))

    def voices(self) -> tuple[Voice, ...]:
        return tuple(voice for engine in self._engines.values() for voice in engine.voices())

    def can_speak(self, text: str, voice: str) -> bool:
        engines = self._engines.values()
        if any(engine.can_speak(text, voice) for engine in engines):
            return True
        return any(engine.can_speak(text, known.id) for engine in engines for known in engine.voices())

    def expect(self, voice: str) -> None:
        """A text for `voice` will follow within seconds: its engine gets ready. Never waits, never fails."""
        for engine in self._engines.values():
            able: object = engine
            if isinstance(able, Expectant) and any(known.id == voice for known in engine.voices()):
                able.expect(voice)

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        """Stream the segment, whoever speaks it. Raises `VoiceUnavailable`, or the last engine's error when all have failed."""
        if not speakable(synthesis.text):
            return
        candidates = self._candidates(synthesis.text, synthesis.voice, synthesis.language)
        if not candidates:
            raise VoiceUnavailable(f"no voice can speak this text of {len(synthesis.text)} characters")
        progress = Progress(synthesis)
        for part in divide(synthesis.text, LONGEST_PART):
            progress.open_part(part)
            async with aclosing(self._speak_part(progress, Plan(candidates, self._breakers))) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _speak_part(self, progress: Progress, plan: Plan) -> AsyncGenerator[SpeechChunk, None]:
        loop = asyncio.get_running_loop()
        failure: EngineError | None = None
        while speakable(progress.rest):
            candidate = plan.next(loop.time())
            if candidate is None:
                assert failure is not None, "a plan with candidates asks one of them first"
                raise failure
            progress.begin(candidate.voice, self._pace.get(candidate.voice, USUAL_MS_PER_UNIT))
            outcome: EngineError | None = None
            is_over = False
            try:
                async with aclosing(self._ask(progress, candidate)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                is_over = True
            except EngineError as error:
                outcome, is_over = error, True
            finally:
                if not is_over:
                    plan.left(candidate)
            if outcome is None:
                plan.succeeded(candidate)
                self._learn(candidate.voice, progress.end())
                return
            failure = outcome
            progress.cut(outcome)
            rests = plan.failed(candidate, _failure(outcome), loop.time())
            self.observer.on_voice_fault(candidate.engine, _failure(outcome).kind, rests)

    async def _ask(self, progress: Progress, candidate: Candidate) -> AsyncGenerator[SpeechChunk, None]:
        """What `candidate` makes of the rest, placed behind what was said."""
        manner = self._table.manners.get(candidate.voice, VoiceManner())
        asked = progress.request(resolve(progress.synthesis.style, manner, self._table.emotions))
        if candidate.voice != progress.synthesis.voice:
            self.observer.on_voice_change(progress.synthesis.voice, candidate.voice)
        async with aclosing(self._engines[candidate.engine].synthesize(asked)) as chunks:
            async for chunk in chunks:
                placed = progress.place(chunk)
                if placed is not None:
                    yield placed

    def _learn(self, voice: str, ms_per_unit: float | None) -> None:
        """How fast a voice speaks, from texts that it spoke whole."""
        if ms_per_unit is not None:
            known = self._pace.get(voice, ms_per_unit)
            self._pace[voice] = known + 0.2 * (ms_per_unit - known)

    def _candidates(self, text: str, asked: str, language: str) -> list[Candidate]:
        """One voice of each engine that can read the text: the asked one first, then by language, then by the engines' order."""
        known = next((voice for voice in self.voices() if voice.id == asked), None)
        wanted = [primary(language)] if language else []
        wanted += [primary(each) for each in known.languages] if known is not None else []
        found: list[tuple[int, Candidate]] = []
        for name, engine in self._engines.items():
            ranked = sorted(engine.voices(), key=lambda voice: _rank(voice, asked, wanted))
            best = next((voice for voice in ranked if engine.can_speak(text, voice.id)), None)
            if best is not None:
                found.append((_rank(best, asked, wanted), Candidate(name, best.id)))
        return [candidate for _, candidate in sorted(found, key=lambda pair: pair[0])]


def _rank(voice: Voice, asked: str, wanted: Sequence[str]) -> int:
    """0 the asked voice, then voices of the wanted languages in their order, then all others."""
    if voice.id == asked:
        return 0
    places = [wanted.index(language) for language in map(primary, voice.languages) if language in wanted]
    return 1 + min(places) if places else 1 + len(wanted)


def _failure(error: EngineError) -> Failure:
    """A cut counts as the fault behind it."""
    cause = error.__cause__ if isinstance(error, SpeechCut) and isinstance(error.__cause__, EngineError) else error
    return Failure(cause.kind, cause.retry_after_s)
