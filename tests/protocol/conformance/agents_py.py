"""`openai-agents` for Python as a user writes it.

Run by the clients' own interpreter: `agents_py.py URL KEY` in writing, `agents_py.py URL KEY QUESTION.wav INTERRUPTION.wav` by voice.
The SDK reports every event that does not fit its types as an error: those are the faults. Prints one JSON line per scenario.
"""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from typing import Any

from agents import function_tool, set_tracing_disabled  # type: ignore[import-not-found, unused-ignore]  # in the clients' environment
from agents.realtime import RealtimeAgent, RealtimeRunner  # type: ignore[import-not-found, unused-ignore]  # as above

set_tracing_disabled(True)
CALLS: list[str] = []
Sdk = Any  # the SDK's own objects, which this environment does not know


@function_tool  # type: ignore[untyped-decorator, unused-ignore]  # unknown in this environment
def get_weather(city: str) -> str:
    """Weather of a city."""
    CALLS.append(city)
    return "sunny"


async def talk(
    url: str, key: str, scenario: str, message: str, *, modalities: tuple[str, ...] = ("audio",), interrupt: bool = False
) -> None:
    agent = RealtimeAgent(name="Assistant", instructions="Be kind.", tools=[get_weather])
    runner = RealtimeRunner(agent, config={"model_settings": {"model_name": "gpt-realtime", "output_modalities": list(modalities)}})
    seen: list[str] = []
    faults: list[str] = []
    n_audio_bytes, has_interrupted = 0, False
    async with asyncio.timeout(60), await runner.run(model_config={"url": url, "api_key": key}) as session:
        await session.send_message(message)
        async for event in session:
            seen.append(event.type)
            if event.type == "error":
                faults.append(str(event.error)[:600])
            elif event.type == "audio":
                n_audio_bytes += len(event.audio.data)
                if interrupt and not has_interrupted and n_audio_bytes > 20_000:
                    has_interrupted = True
                    await session.interrupt()
            elif event.type == "agent_end" and not (scenario == "tool" and seen.count("agent_end") < 2):
                break
        for _ in range(10):
            await asyncio.sleep(0.02)
        said = [
            part.transcript if part.type == "audio" else part.text
            for item in session._history
            if getattr(item, "role", "") == "assistant"
            for part in item.content
        ]
    outcome = {"scenario": scenario, "text": "".join(filter(None, said)), "n_audio_bytes": n_audio_bytes, "faults": faults}
    print(json.dumps({**outcome, "seen": sorted(set(seen)), "calls": CALLS}), flush=True)


async def speak(session: Sdk, wav: str) -> None:
    """A recording in pieces of 100 ms, four times as fast as it was spoken."""
    with wave.open(wav) as recording:
        while piece := recording.readframes(2400):
            await session.send_audio(piece)
            await asyncio.sleep(0.025)


async def spoken(url: str, key: str, question: str, interruption: str) -> None:
    """A question by voice, its answer talked over, and the answer to that."""
    agent = RealtimeAgent(name="Assistant", instructions="Be kind.")
    hears = {"turn_detection": {"type": "server_vad", "silence_duration_ms": 300}, "transcription": {"model": "whisper-1"}}
    runner = RealtimeRunner(agent, config={"model_settings": {"model_name": "gpt-realtime", "audio": {"input": hears}}})
    seen: list[str] = []
    faults: list[str] = []
    events: list[Sdk] = []
    n_audio_bytes, has_interrupted = 0, False
    async with asyncio.timeout(60), await runner.run(model_config={"url": url, "api_key": key}) as session:
        has_asked = False
        async for event in session:
            seen.append(event.type)
            if event.type == "error":
                faults.append(str(event.error)[:600])
            elif event.type == "raw_model_event" and event.data.type == "raw_server_event":
                events.append(event.data.data)
                if not has_asked and event.data.data["type"] == "session.updated":
                    has_asked = True
                    await speak(session, question)
            elif event.type == "audio":
                n_audio_bytes += len(event.audio.data)
                if not has_interrupted and n_audio_bytes > 30_000:
                    has_interrupted = True
                    await speak(session, interruption)
            if sum(one["type"] == "response.done" for one in events) == 2:
                break
        await asyncio.sleep(0.2)
        said = [part.transcript for item in session._history if getattr(item, "role", "") == "assistant" for part in item.content]
        heard = [part.transcript for item in session._history if getattr(item, "role", "") == "user" for part in item.content]
    outcome = {"scenario": "spoken", "text": said[-1] if said else "", "n_audio_bytes": n_audio_bytes, "faults": faults, "heard": heard}
    print(json.dumps({**outcome, "seen": sorted(set(seen)), "events": events}), flush=True)


async def main(url: str, key: str) -> None:
    await talk(url, key, "text", "Hello", modalities=("text",))
    await talk(url, key, "audio", "Hello")
    await talk(url, key, "tool", "How is the weather?")
    await talk(url, key, "cancel", "Talk at length.", interrupt=True)


if __name__ == "__main__":
    asyncio.run(spoken(*sys.argv[1:5]) if sys.argv[3:] else main(*sys.argv[1:3]))
