"""What a listener hears of a slow voice: gaps, how long they are, and whether anything false is told meanwhile.

    python -m tests.load.gaps_bench

A real session on a virtual clock, a player that keeps real time and reports as ours do; the same every time. `one by one`: a voice that
makes one text at a time (a local model), `side by side`: one that makes several (a service). `plain` is one segment ahead
whatever the voice, `adaptive` is what we ship, after one reply from which the voice's pace is known.

A gap is 10 ms or more without sound in a reply that has begun. `told too much`: by how many milliseconds at most we believed more heard
than the player had played. `false heard`: what a stopped reply's `heard` said was not the beginning of the reply, or longer than its sound.
"""

from __future__ import annotations

import asyncio
import statistics
import sys

from msgspec import Struct

from engine.fake import Script, tokenize
from gateway.client.playout import PlayoutClock
from gateway.events import AudioFrame, Cancel, Heard, SendText, TurnDone, TurnStarted
from gateway.speaker import VoicePace
from tests.doubles.slow_voice import SlowVoice
from tests.session.stage import Stage, stage
from tests.session.virtual_loop import VirtualLoop

REPLIES = (
    "The sea covers most of our planet, and we have seen less of it than of the moon. Its deepest valley lies eleven kilometers down. "
    "Even there, in the cold and the dark, small animals live and glow. Nobody knows how many there are. "
    "Some of them are older than we are.",
    "Yes, of course. You can take the early train and be there before noon. It stops twice on its way. "
    "If you want to sit, book a seat today. I would take the window on the left, because that is where the lake is.",
)
N_REPLIES, GAP_MS, STEP_S, REPORT_S = 20, 10.0, 0.01, 0.25


class Plain(VoicePace):
    """One segment ahead, nothing learned."""

    def learn(self, voice: str, made_s: float, audio_s: float, *, alone: bool) -> None: ...


class Heardness(Struct):
    """Of all replies of a run."""

    spoken_s: float = 0.0
    between_ms: list[float] = []
    within_ms: list[float] = []
    first_ms: list[float] = []
    told_too_much_ms: float = 0.0
    false_heard: int = 0


class Listener:
    """Plays one reply in real time, reports every 250 ms, and notes when there is nothing to play."""

    def __init__(self, scene: Stage, turn: int, result: Heardness) -> None:
        self._scene, self._turn, self._result = scene, turn, result
        self._clock = PlayoutClock()
        self._n_frames, self._index, self._due_s, self._place, self._is_over = 0, 0, 0.0, len(scene.frames), False

    async def listen(self) -> None:
        """Until the turn is done."""
        while not self._is_over:
            self._take()
            self._report()
            await asyncio.sleep(STEP_S)
        self._result.spoken_s += self._clock.total_ms / 1000

    def _take(self) -> None:
        new, self._place = self._scene.frames[self._place :], len(self._scene.frames)
        for at, _, frame in new:
            self._is_over = self._is_over or (isinstance(frame, TurnDone) and frame.turn == self._turn)
            if not isinstance(frame, AudioFrame) or frame.turn != self._turn:
                continue
            starved_ms = self._clock.starved_ms(at)
            if self._n_frames and starved_ms >= GAP_MS:
                (self._result.within_ms if frame.index == self._index else self._result.between_ms).append(starved_ms)
            self._clock.add(len(frame.data) / 48, at)
            self._n_frames, self._index = self._n_frames + 1, frame.index

    def _report(self) -> None:
        now = self._scene.time()
        live = self._scene.session.floor
        if self._n_frames and live is not None and live.number == self._turn:
            self._result.told_too_much_ms = max(self._result.told_too_much_ms, live.heard_ms() - self._clock.played_ms(now))
        if self._n_frames and now >= self._due_s:
            self._due_s = now + REPORT_S
            self._scene.report(self._turn, self._clock.played_ms(now))


async def run(voice: SlowVoice, pace: VoicePace) -> Heardness:
    """Replies one after the other; every third one is stopped, and what `heard` then says is compared with the player."""
    result = Heardness(between_ms=[], within_ms=[], first_ms=[])
    scripts = [Script(tokens=tokenize(reply)) for reply in REPLIES]
    async with stage(scripts, voices=voice, pace=pace) as scene:
        for turn in range(1, N_REPLIES + 2):
            asked_at = scene.time()
            scene.send(SendText(text="Go on."))
            await scene.until(TurnStarted, turn)
            this = Heardness(between_ms=[], within_ms=[], first_ms=[]) if turn == 1 else result
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(Listener(scene, turn, this).listen(), name="listener")
                if turn % 3 == 0:
                    await scene.until(AudioFrame, turn)
                    await asyncio.sleep(1.0 + turn * 0.37)
                    scene.send(Cancel())
                    heard = await scene.until(Heard, turn)
                    spoken = "".join(REPLIES[(turn - 1) % 2])
                    result.false_heard += not spoken.startswith(heard.heard_text) or heard.heard_ms > scene.audio_ms(turn) + 1
            this.first_ms.append((scene.when(AudioFrame, turn) - asked_at) * 1000)
    return result


def row(name: str, result: Heardness) -> str:
    minutes = result.spoken_s / 60
    within, between = result.within_ms, result.between_ms
    longest = max([*within, *between], default=0.0)
    share = sum([*within, *between]) / 10 / result.spoken_s
    return (
        f"| {name} | {len(within) / minutes:.1f} | {len(between) / minutes:.1f} | {longest:.0f} | {share:.1f} % "
        f"| {statistics.median(result.first_ms):.0f} | {result.told_too_much_ms:.0f} | {result.false_heard} |"
    )


def main() -> None:
    if len(sys.argv) > 1:
        sys.exit("expected no arguments")
    print(
        "| voice | RTF | jitter | ahead | gaps in a segment / min | gaps between / min | longest ms | silence | first audio p50 ms", end=""
    )
    print(" | told too much ms | false `heard` |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for rtf in (0.5, 0.9, 1.2):
        for jitter_ms in (0, 300):
            for kind, most in (("one by one", 1), ("side by side", None)):
                for ahead, pace in (("plain", Plain()), ("adaptive", VoicePace())):
                    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                        result = runner.run(_run(rtf, jitter_ms, most, pace))
                    print(row(f"{kind} | {rtf} | 0-{jitter_ms} ms | {ahead}", result), flush=True)


async def _run(rtf: float, jitter_ms: float, most: int | None, pace: VoicePace) -> Heardness:
    return await run(SlowVoice(rtf, jitter_ms, most), pace)


if __name__ == "__main__":
    main()
