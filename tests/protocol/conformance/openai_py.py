"""The `openai` SDK for Python as a user writes it.

Run by the clients' own interpreter: `openai_py.py BASE_URL KEY` in writing, with `QUESTION.wav INTERRUPTION.wav` behind it by voice.
Prints one JSON line per scenario: what the conversation came to, every event that arrived, and where one does not fit the SDK's types.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import wave
from typing import Any

from openai import AsyncOpenAI  # type: ignore[import-not-found, unused-ignore]  # in the clients' environment
from openai.types.realtime import ClientSecretCreateResponse, RealtimeServerEvent  # type: ignore[import-not-found, unused-ignore]  # as above
from pydantic import TypeAdapter, ValidationError  # type: ignore[import-not-found, unused-ignore]  # as above

Sdk = Any  # the SDK's own objects, which this environment does not know

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
WAVS = sys.argv[3:5]
ADAPTER = TypeAdapter(RealtimeServerEvent)


class Talk:
    """One connection; every event is checked against the SDK's types before the SDK's own parser sees it."""

    def __init__(self, connection: Sdk) -> None:
        self.connection = connection
        self.events: list[Sdk] = []
        self.faults: list[str] = []
        self.text, self.n_audio_bytes = "", 0

    async def next(self) -> Sdk:
        raw = await self.connection.recv_bytes()
        event = json.loads(raw)
        self.events.append(event)
        try:
            ADAPTER.validate_json(raw)
        except ValidationError as error:
            self.faults.append(f"{event['type']}: {error}"[:600])
        parsed = self.connection.parse_event(raw)
        if parsed.type in ("response.output_text.delta", "response.output_audio_transcript.delta"):
            self.text += parsed.delta
        elif parsed.type == "response.output_audio.delta":
            self.n_audio_bytes += len(base64.b64decode(parsed.delta))
        return parsed

    async def until(self, kind: str, n: int = 1) -> Sdk:
        event = None
        while n:
            event = await self.next()
            n -= event.type == kind
        return event

    async def speak(self, wav: str) -> None:
        """Append a recording in pieces of 100 ms, four times as fast as it was spoken."""
        with wave.open(wav) as recording:
            while piece := recording.readframes(2400):
                await self.connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
                await asyncio.sleep(0.025)

    async def ask(self, text: str, response: Sdk = None) -> None:
        content = [{"type": "input_text", "text": text}]
        await self.connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await self.connection.response.create(**({"response": response} if response else {}))


async def text(talk: Talk) -> Sdk:
    await talk.connection.session.update(session={"type": "realtime", "output_modalities": ["text"], "instructions": "Be kind."})
    await talk.ask("Hello")
    return (await talk.until("response.done")).response


async def secret(talk: Talk) -> Sdk:
    """On a connection whose settings came with its client secret."""
    await talk.ask("Hello")
    return (await talk.until("response.done")).response


async def audio(talk: Talk) -> Sdk:
    await talk.ask("Hello")
    return (await talk.until("response.done")).response


async def tool(talk: Talk) -> Sdk:
    await talk.connection.session.update(session={"type": "realtime", "tools": [TOOL], "tool_choice": "auto"})
    await talk.ask("How is the weather?")
    done = await talk.until("response.done")
    call = next(item for item in done.response.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Paris"}, call
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    await talk.connection.conversation.item.create(item=output)
    await talk.connection.response.create()
    return (await talk.until("response.done")).response


async def cancel(talk: Talk) -> Sdk:
    await talk.ask("Talk at length.")
    await talk.until("response.output_audio.delta", 3)
    await talk.connection.response.cancel()
    done = await talk.until("response.done")
    item_id = done.response.output[0].id
    await talk.connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=150)
    await talk.until("conversation.item.truncated")
    await talk.connection.conversation.item.retrieve(item_id=item_id)
    await talk.until("conversation.item.retrieved")
    await talk.connection.conversation.item.delete(item_id=item_id)
    await talk.until("conversation.item.deleted")
    return done.response


async def out_of_band(talk: Talk) -> Sdk:
    await talk.ask("Talk at length.")
    await talk.until("response.output_audio.delta")
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Classify this."}]}
    wish = {"conversation": "none", "output_modalities": ["text"], "metadata": {"topic": "kind"}, "input": [message]}
    await talk.connection.response.create(response=wish)
    done = await talk.until("response.done")
    assert done.response.metadata == {"topic": "kind"}, done
    await talk.connection.response.cancel()
    await talk.until("response.done")
    return done.response


async def spoken(talk: Talk) -> Sdk:
    """A question by voice, its answer talked over, and the answer to that."""
    detection = {"type": "server_vad", "silence_duration_ms": 300}
    hears = {"turn_detection": detection, "transcription": {"model": "whisper-1"}}
    await talk.connection.session.update(session={"type": "realtime", "audio": {"input": hears}})
    await talk.until("session.updated")
    await talk.speak(WAVS[0])
    await talk.until("input_audio_buffer.committed")
    await talk.until("conversation.item.input_audio_transcription.completed")
    await talk.until("response.output_audio.delta", 8)
    await talk.speak(WAVS[1])
    stopped = (await talk.until("response.done")).response
    assert (stopped.status, stopped.status_details.reason) == ("cancelled", "turn_detected"), stopped
    await talk.connection.conversation.item.truncate(item_id=stopped.output[0].id, content_index=0, audio_end_ms=400)
    await talk.until("conversation.item.truncated")
    talk.text = ""
    return (await talk.until("response.done")).response


async def telephone(talk: Talk) -> Sdk:
    """G.711 both ways, spoken fast; nobody says anything, and is asked for it."""
    hears = {"format": {"type": "audio/pcmu"}, "turn_detection": {"type": "server_vad", "idle_timeout_ms": 1000, "threshold": 0.6}}
    speaks = {"format": {"type": "audio/pcma"}, "speed": 1.5}
    await talk.connection.session.update(session={"type": "realtime", "audio": {"input": hears, "output": speaks}})
    shown = (await talk.until("session.updated")).session.audio
    assert (shown.input.format.type, shown.output.format.type, shown.output.speed) == ("audio/pcmu", "audio/pcma", 1.5), shown
    assert shown.input.turn_detection.idle_timeout_ms == 1000, shown
    await talk.ask("Hello")
    await talk.until("response.done")
    talk.text = ""
    timeout = await talk.until("input_audio_buffer.timeout_triggered")
    committed = await talk.until("input_audio_buffer.committed")
    assert committed.item_id == timeout.item_id, committed
    return (await talk.until("response.done")).response


async def fault(talk: Talk) -> Sdk:
    await talk.connection.response.cancel(event_id="mine")
    error = await talk.until("error")
    assert error.error.event_id == "mine", error
    return None


async def bound(client: Sdk, base_url: str) -> Sdk:
    """The SDK of a page that has no key: a client secret with a session's settings, which its own types judge as well."""
    session = {"type": "realtime", "output_modalities": ["text"], "instructions": "Be kind."}
    answer = await client.realtime.client_secrets.with_raw_response.create(expires_after={"seconds": 30}, session=session)
    secret = ClientSecretCreateResponse.model_validate_json(answer.http_response.content, strict=True)
    assert (secret.session.instructions, secret.session.output_modalities) == ("Be kind.", ["text"]), secret
    return AsyncOpenAI(api_key=secret.value, base_url=base_url, websocket_base_url=base_url.replace("http", "ws", 1))


async def main(base_url: str, key: str) -> None:
    client = AsyncOpenAI(api_key=key, base_url=base_url, websocket_base_url=base_url.replace("http", "ws", 1))
    for scenario in (spoken, telephone) if WAVS else (text, secret, audio, tool, cancel, out_of_band, fault):
        sdk = await bound(client, base_url) if scenario is secret else client
        async with sdk.realtime.connect(model="gpt-realtime") as connection:
            talk = Talk(connection)
            await talk.until("session.created")
            async with asyncio.timeout(60):
                response = await scenario(talk)
        outcome = {"scenario": scenario.__name__, "text": talk.text, "n_audio_bytes": talk.n_audio_bytes, "faults": talk.faults}
        print(json.dumps({**outcome, "status": response and response.status, "events": talk.events}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
