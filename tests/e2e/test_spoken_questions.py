"""Spoken turns through the real ears: the short form of `tests.load.spoken_bench`, and a speech longer than any window."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from difflib import SequenceMatcher

import numpy as np
import pytest
import pytest_asyncio

from engine.api import Ears
from engine.asr.whisper import Whisper
from engine.build_listening import build_ears
from engine.settings import AsrSettings, EngineSettings
from engine.weights import SILERO, SMART_TURN, WHISPER_BASE, fetch
from gateway.events import AppendAudio, AudioFrame, SpeechEnded, SpeechStarted, Transcribed, TurnDone, TurnStarted
from gateway.sessions import Sessions
from tests.load.crowd_bench import crowd, processes
from tests.load.spoken_bench import SHORT, Bench, Client, admitting
from tests.load.spoken_questions import CACHE, QUESTIONS, Said, noisy, spoken, words

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
UNDERSTOOD = 0.7  # one word of a short question may be misheard
SPEECH = (
    "The old house stood at the end of a narrow road, with tall trees on both sides.",
    "Nobody had lived there for many years, and the garden was full of wild flowers.",
    "One morning in spring a young woman came from the city with two heavy bags.",
    "She opened the green door with a rusty key, and looked around in the dark hall.",
    "There was dust on the stairs, and somewhere upstairs a window moved in the wind.",
    "She put down her bags, took off her coat, and began to sing while she cleaned the kitchen.",
    "In the evening she sat by the fire and wrote a long letter to her brother.",
    "Her brother answered after a week, and asked her to come home before the winter.",
    "But she had already planted onions and carrots behind the house, and did not want to leave them.",
    "On Sundays she walked to the village, bought bread and milk, and talked with the old baker.",
    "He told her that the house had belonged to a sailor who never came back from the sea.",
    "When the first snow fell, she heard somebody knock at the door in the middle of the night.",
    "It was a man with a grey beard, who said that he had been away for thirty years.",
    "He sat down at the table, ate a bowl of soup, and looked at every picture on the wall.",
    "In the morning he was gone again, and only his footprints led down to the harbor.",
)


def likeness(text: str, told: str) -> float:
    return SequenceMatcher(None, words(text), words(told), autojunk=False).ratio()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ears() -> AsyncGenerator[Ears, None]:
    for weights in (WHISPER_BASE, SILERO, SMART_TURN):
        fetch(weights, CACHE, print)
    made, note = build_ears(EngineSettings(cache_path=CACHE, asr=AsrSettings(engine="whisper")))
    assert made is not None, note
    assert made.end_of_turn is not None
    await asyncio.gather(made.recognizer.start(), made.detector.start(), made.end_of_turn.start())
    yield made
    await asyncio.gather(made.recognizer.close(), made.detector.close(), made.end_of_turn.close())


async def test_spoken_questions_are_understood_and_answered_in_order(ears: Ears) -> None:
    questions = await spoken(QUESTIONS[:2], by_all=False)
    questions.append(noisy(questions[0], 20, np.random.default_rng(5)))
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(await Bench(ears).parts(SHORT, drafts=True), admitting())
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        client = Client(sessions)
        reader = await client.open(tasks)
        for question in questions:
            began_s = await client.speak(question.pcm)
            assert await client.until(TurnDone, began_s, 60) is not None
            whens = [client.when(kind, began_s) for kind in (SpeechStarted, SpeechEnded, TurnStarted, AudioFrame, TurnDone)]
            assert whens == sorted(when for when in whens if when is not None), "each came, in this order"
            assert likeness(client.final(began_s)[1], question.text) > UNDERSTOOD
        reader.cancel()
        sessions.stop()


async def test_ears_killed_in_mid_utterance_understand_it_when_they_are_back(ears: Ears) -> None:
    (question,) = await spoken(QUESTIONS[:1], by_all=False)
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(await Bench(ears).parts(SHORT, drafts=True), admitting())
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        client = Client(sessions)
        reader = await client.open(tasks)
        speaking = tasks.create_task(client.speak(question.pcm), name="speaker")
        await asyncio.sleep(question.end_s / 2)
        assert isinstance(ears.recognizer, Whisper)
        assert ears.recognizer.pid is not None
        os.kill(ears.recognizer.pid, signal.SIGKILL)
        began_s = await speaking
        assert await client.until(TurnDone, began_s, 60) is not None
        assert likeness(client.final(began_s)[1], question.text) > UNDERSTOOD
        reader.cancel()
        sessions.stop()


async def test_a_speech_of_seventy_seconds_is_one_utterance_and_understood_to_its_end(ears: Ears) -> None:
    pcm = b"".join(with_pause(sentence) for sentence in await spoken(SPEECH, by_all=False)) + bytes(3 * 32_000)
    assert len(pcm) > 70 * 32_000, "it is shorter than it says"
    async with asyncio.TaskGroup() as tasks:
        sessions = Sessions(await Bench(ears).parts(SHORT, drafts=False), admitting())
        tasks.create_task(sessions.run(), name="sessions")
        await sessions.started.wait()
        client = Client(sessions)
        reader = await client.open(tasks)
        began_s = asyncio.get_running_loop().time()
        for start in range(0, len(pcm), 32_000):  # at once: it is heard as fast as the ears can
            client.session.receive(AppendAudio(data=pcm[start : start + 32_000], pts_ms=start / 32))
        assert await client.until(TurnStarted, began_s, 100) is not None
        text = client.final(began_s)[1]
        reader.cancel()
        sessions.stop()
    assert sum(isinstance(event, Transcribed) and event.final for _, event in client.arrived) == 1
    assert likeness(text, " ".join(SPEECH)) > 0.85
    assert likeness(" ".join(text.split()[-16:]), SPEECH[-1]) > 0.5, "its end is there"


def with_pause(sentence: Said) -> bytes:
    """With 450 ms behind it: shorter than the wait for a text that is still awaited."""
    return sentence.pcm[: int((sentence.end_s + 0.45) * 16_000) * 2]


async def test_of_a_crowd_that_speaks_at_once_everybody_is_understood_or_told(ears: Ears) -> None:
    """The short form of `tests.load.crowd_bench`: more people than can be read in the time that a final text has."""
    assert isinstance(ears.recognizer, Whisper)
    n_people = 12
    parts = await Bench(ears).parts(SHORT, drafts=False, hearing={"final_s": 1.0})
    told = await crowd(await spoken(QUESTIONS[:6], by_all=False), n_people, 1, parts, ears.recognizer, processes(ears))
    assert told["utterances"] >= n_people
    assert told["unanswered"] == 0, told
    assert set(told["told"]) <= {"asr_failed"}
    assert max(figures["most_waiting"] for figures in told["rounds"]) <= 2 * told["utterances"], "a final and a partial of each at most"
    assert told["waiting_at_the_end"] == 0
