"""OpenAI Realtime over the whole conversation: lifecycles, tools, cancel, truncation, out-of-band replies, refusals."""

from __future__ import annotations

import asyncio
import base64

import pytest

from engine.api import EngineError, VoiceUnavailable
from engine.audio import peak
from engine.audio_codecs import g711
from engine.fake import Fault, Script, ScriptedModel, ScriptedVoice, tokenize
from tests.doubles.answering import ANSWERS, LONG, AnsweringModel
from tests.protocol.realtime_stage import realtime

pytestmark = pytest.mark.virtual

TOOL = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": {"type": "object", "properties": {}}}


async def test_a_text_turn_has_its_whole_lifecycle() -> None:
    async with realtime() as client:
        client.send("session.update", session={"type": "realtime", "output_modalities": ["text"]})
        client.say("Hello")
        client.send("response.create")
        done = await client.until("response.done")
        assert client.kinds() == [
            "session.created",
            "session.updated",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        assert done["response"]["status"] == "completed"
        assert done["response"]["output"][0]["content"] == [{"type": "output_text", "text": "Hello there. Nice to meet you."}]
        assert done["response"]["usage"]["output_tokens"] == len(tokenize("Hello there. Nice to meet you."))
        added = client.of("conversation.item.added")
        assert added[1]["previous_item_id"] == added[0]["item"]["id"]


async def test_a_spoken_turn_writes_each_sentence_before_its_sound() -> None:
    async with realtime() as client:
        client.say("Hello")
        client.send("response.create")
        done = await client.until("response.done")
        pieces = [e["type"].split(".")[1] + e["type"].split(".")[2] for e in client.events if e["type"].endswith(".delta")]
        runs = [piece for piece, before in zip(pieces, ["", *pieces], strict=False) if piece != before]
        assert runs == ["output_audio_transcriptdelta", "output_audiodelta"] * 2
        assert done["response"]["output"][0]["content"] == [{"type": "output_audio", "transcript": "Hello there. Nice to meet you."}]
        lengths = [len(base64.b64decode(event["delta"])) for event in client.of("response.output_audio.delta")]
        assert lengths[:2] == [960, 4800]
        assert max(lengths) == 4800


async def test_the_client_names_its_items_and_their_place() -> None:
    async with realtime() as client:
        client.say("A", id="a")
        client.say("B", id="b")
        client.send(
            "conversation.item.create", previous_item_id="root", item={"id": "s", "type": "message", "role": "system", "content": []}
        )
        client.send(
            "conversation.item.create",
            event_id="e1",
            previous_item_id="a",
            item={"id": "c", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "C"}]},
        )
        client.send("conversation.item.create", event_id="e2", item={"id": "a", "type": "message", "role": "user", "content": _text("A")})
        client.send(
            "conversation.item.create",
            event_id="e3",
            previous_item_id="no",
            item={"type": "message", "role": "user", "content": _text("x")},
        )
        await client.settle()
        shown = [(event["item"]["id"], event["previous_item_id"]) for event in client.of("conversation.item.done")]
        assert shown == [("a", None), ("b", "a"), ("c", "a")]
        assert client.errors() == [
            ("invalid_value", None),
            ("item_create_duplicate_item_id", "e2"),
            ("item_create_invalid_previous_item_id", "e3"),
        ]


async def test_a_function_call_ends_the_response_and_its_output_is_answered_by_the_next() -> None:
    model = AnsweringModel()
    async with realtime(model=model) as client:
        client.send("session.update", session={"tools": [TOOL], "output_modalities": ["text"]})
        client.say("Look silently.")
        client.send("response.create")
        done = (await client.until("response.done"))["response"]
        assert client.kinds("response.") == [
            "response.created",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.done",
        ]
        call = done["output"][0]
        assert (call["type"], call["status"], call["arguments"]) == ("function_call", "completed", '{"city": "Paris"}')
        assert client.of("response.function_call_arguments.done")[0]["name"] == "get_weather"
        client.send("conversation.item.create", item={"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"})
        client.send("response.create")
        await client.until("response.done", 2)
        assert [message.role for message in model.requests[-1].prompt.messages] == ["system", "user", "assistant", "tool"]
        assert "".join(event["delta"] for event in client.of("response.output_text.delta")) == "It is sunny in Paris."


async def test_words_come_before_the_call_in_one_response() -> None:
    async with realtime() as client:
        client.send("session.update", session={"tools": [TOOL]})
        client.say("How is the weather?")
        client.send("response.create")
        done = (await client.until("response.done"))["response"]
        assert [item["type"] for item in done["output"]] == ["message", "function_call"]
        added = client.of("conversation.item.added")
        assert [event["previous_item_id"] for event in added] == [None, added[0]["item"]["id"], added[1]["item"]["id"]]


async def test_a_model_that_takes_no_tools_refuses_them_at_the_update_and_answers_on() -> None:
    async with realtime(model=ScriptedModel(["Fine."], takes_tools=False)) as client:
        client.send("session.update", event_id="e1", session={"tools": [TOOL], "instructions": "Be a pirate."})
        client.say("Hello?")
        client.send("response.create", event_id="e2", response={"tools": [TOOL]})
        client.send("response.create", response={"output_modalities": ["text"]})
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        told = [event["error"] for event in client.of("error")]
        assert [(error["code"], error["param"], error["event_id"], error["type"]) for error in told] == [
            ("invalid_value", "session.tools", "e1", "invalid_request_error"),
            ("invalid_value", "response.tools", "e2", "invalid_request_error"),
        ]
        assert "takes none" in told[0]["message"]
        assert client.of("session.updated") == []


async def test_outputs_for_unknown_or_answered_calls_are_errors() -> None:
    async with realtime() as client:
        client.send("session.update", session={"tools": [TOOL]})
        client.say("Look silently.")
        client.send("response.create")
        call = (await client.until("response.done"))["response"]["output"][0]
        for event_id, call_id in (("a", "nobody"), ("b", call["call_id"]), ("c", call["call_id"])):
            item = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
            client.send("conversation.item.create", event_id=event_id, item=item)
        await client.settle()
        assert client.errors() == [("item_create_invalid_call_id", "a"), ("item_create_invalid_call_id", "c")]


async def test_cancel_closes_every_bracket_and_a_create_right_behind_it_succeeds() -> None:
    async with realtime() as client:
        client.say("Talk at length.")
        client.send("response.create")
        await client.until("response.output_audio.delta", 30)
        client.send("response.cancel")
        client.say("Hello")
        client.send("response.create")
        first = (await client.until("response.done"))["response"]
        assert (first["status"], first["status_details"]) == ("cancelled", {"type": "cancelled", "reason": "client_cancelled"})
        assert first["output"][0]["status"] == "incomplete"
        second = (await client.until("response.done", 2))["response"]
        assert second["status"] == "completed"
        assert not client.errors()


async def test_cancel_by_id_and_cancel_of_nothing() -> None:
    async with realtime() as client:
        client.send("response.cancel", event_id="a")
        client.send("response.cancel", event_id="b", response_id="resp_other")
        client.say("Talk at length.")
        client.send("response.create")
        created = await client.until("response.created")
        client.send("response.cancel", response_id=created["response"]["id"])
        await client.until("response.done")
        client.send("response.cancel", event_id="c", response_id=created["response"]["id"])
        await client.settle()
        assert client.errors() == [("response_cancel_not_active", event_id) for event_id in "abc"]
        assert {event["error"]["message"] for event in client.of("error")} == {"Cancellation failed: no active response found"}


async def test_one_response_at_a_time_and_the_refusal_names_the_active_one() -> None:
    async with realtime() as client:
        client.say("Talk at length.")
        client.send("response.create")
        client.send("response.create", event_id="again")
        created = await client.until("response.created")
        await client.settle()
        assert client.errors() == [("conversation_already_has_active_response", "again")]
        assert created["response"]["id"] in client.of("error")[0]["error"]["message"]


async def test_a_create_before_the_last_sound_has_left_waits_its_turn() -> None:
    """The model is done, frames are on their way: the next response begins behind the end of the one before."""
    async with realtime(is_slow_to_read=True) as client:
        client.say("Hello")
        client.send("response.create")
        await asyncio.sleep(1.9)  # everything was handed out, nothing was read
        client.say("Hello")
        client.send("response.create")
        await asyncio.sleep(0.5)
        reading = asyncio.create_task(client.read())
        await client.until("response.done", 2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert not client.errors()


async def test_truncate_is_clamped_acknowledged_and_cuts_the_context() -> None:
    model = AnsweringModel()
    async with realtime(model=model) as client:
        client.say("Talk at length.")
        client.send("response.create")
        await client.until("response.output_audio.delta", 30)
        client.send("response.cancel")
        item_id = client.of("response.output_item.added")[0]["item"]["id"]
        client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1500)
        client.send("conversation.item.retrieve", item_id=item_id)
        shown = (await client.until("conversation.item.retrieved"))["item"]["content"]
        assert client.of("conversation.item.truncated")[0]["audio_end_ms"] == 1500
        assert shown[0]["type"] == "output_audio"
        assert LONG.startswith(shown[0]["transcript"])
        client.say("Hello")
        client.send("response.create")
        await client.until("response.output_audio.delta", 40)
        assert model.requests[-1].prompt.messages[-2].text == shown[0]["transcript"]
        client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=10_000_000)
        assert (await client.until("conversation.item.truncated", 2))["audio_end_ms"] < 10_000_000
        assert not client.errors()


async def test_an_out_of_band_response_runs_beside_and_touches_no_conversation() -> None:
    async with realtime() as client:
        client.say("Talk at length.")
        client.send("response.create")
        await client.until("response.output_audio.delta")
        item = {"type": "message", "role": "user", "content": _text("Classify this.")}
        wish = {"conversation": "none", "metadata": {"topic": "kind"}, "output_modalities": ["text"], "input": [item]}
        client.send("response.create", response=wish)
        side = (await client.until("response.done"))["response"]
        assert (side["conversation_id"], side["metadata"], side["output_modalities"]) == (None, {"topic": "kind"}, ["text"])
        assert side["output"][0]["content"][0]["text"] == "greeting"
        assert client.of("response.created")[1]["response"]["metadata"] == {"topic": "kind"}
        main = (await client.until("response.done", 2))["response"]
        assert main["status"] == "completed"
        assert len(client.of("conversation.item.added")) == 2


async def test_an_item_reference_brings_an_item_of_the_conversation() -> None:
    model = AnsweringModel()
    async with realtime(model=model) as client:
        client.say("Hello", id="mine")
        wish = {"conversation": "none", "input": [{"type": "item_reference", "id": "mine"}]}
        client.send("response.create", response=wish)
        client.send("response.create", event_id="x", response={**wish, "input": [{"type": "item_reference", "id": "no"}]})
        await client.until("response.done")
        assert model.requests[0].prompt.messages[-1].text == "Hello"
        assert client.errors() == [("item_reference_invalid_item_id", "x")]


async def test_overrides_hold_for_one_response() -> None:
    model = AnsweringModel()
    async with realtime(model=model) as client:
        client.say("Hello")
        wish = {"instructions": "Be brief.", "output_modalities": ["text"], "max_output_tokens": 3, "tools": [TOOL], "tool_choice": "none"}
        client.send("response.create", response=wish)
        first = (await client.until("response.done"))["response"]
        assert (first["status"], first["status_details"]) == ("incomplete", {"type": "incomplete", "reason": "max_output_tokens"})
        assert (first["max_output_tokens"], first["output_modalities"]) == (3, ["text"])
        assert model.requests[0].prompt.messages[0].text == "Be brief."
        client.send("response.create")
        second = (await client.until("response.done", 2))["response"]
        assert (second["status"], second["output_modalities"], second["max_output_tokens"]) == ("completed", ["audio"], "inf")


async def test_a_model_that_fails_ends_its_response_and_nothing_else() -> None:
    broken = Script(tokens=tokenize("One two three. Four"), fault=Fault(at=4, error=EngineError))
    async with realtime(model=AnsweringModel({**ANSWERS, "broken": broken})) as client:
        client.say("broken")
        client.send("response.create")
        failed = (await client.until("response.done"))["response"]
        assert (failed["status"], failed["status_details"]["error"]["code"]) == ("failed", "llm_failed")
        client.say("Hello")
        client.send("response.create")
        assert (await client.until("response.done", 2))["response"]["status"] == "completed"
        assert not client.errors()


async def test_a_voice_that_fails_altogether_fails_the_response() -> None:
    async with realtime(voice=ScriptedVoice(faults={"": Fault(at=0, error=EngineError)})) as client:
        client.say("Hello")
        client.send("response.create")
        failed = (await client.until("response.done"))["response"]
        assert (failed["status"], failed["status_details"]["error"]["code"]) == ("failed", "tts_failed")
        assert failed["output"][0]["content"][0]["transcript"] == "Hello there. Nice to meet you."
        assert not client.errors()


async def test_a_sentence_without_voice_is_written_and_the_reply_goes_on() -> None:
    async with realtime(voice=ScriptedVoice(faults={"there": Fault(at=0, error=VoiceUnavailable)})) as client:
        client.say("Hello")
        client.send("response.create")
        done = (await client.until("response.done"))["response"]
        assert done["status"] == "completed"
        assert done["output"][0]["content"][0]["transcript"] == "Hello there. Nice to meet you."


async def test_audio_in_is_refused_once_and_then_dropped() -> None:
    async with realtime() as client:
        for n in range(20):
            client.send("input_audio_buffer.append", event_id=f"a{n}", audio="AAAA")
        client.send("input_audio_buffer.commit", event_id="c")
        client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        assert client.errors() == [("audio_input_not_supported", "a0"), ("input_audio_buffer_commit_empty", "c")]


async def test_the_voice_is_fixed_after_the_first_sound() -> None:
    async with realtime() as client:
        client.send("session.update", session={"audio": {"output": {"voice": "fake-low"}}})
        client.say("Hello")
        client.send("response.create")
        await client.until("response.output_audio.delta")
        client.send("session.update", event_id="x", session={"instructions": "New.", "audio": {"output": {"voice": "fake-en"}}})
        client.send("session.update", session={"audio": {"output": {"voice": "fake-low"}}})
        await client.settle()
        assert client.errors() == [("cannot_update_voice", "x")]
        assert client.of("session.updated")[-1]["session"]["instructions"] != "New."


def _text(text: str) -> list[dict[str, str]]:
    return [{"type": "input_text", "text": text}]


@pytest.mark.parametrize(("name", "law"), [("audio/pcmu", "g711u"), ("audio/pcma", "g711a")])
async def test_a_telephone_gets_g711_and_what_it_heard_stays_true(name: str, law: g711.Law) -> None:
    async with realtime() as client:
        client.send("session.update", session={"audio": {"output": {"format": {"type": name}}}})
        updated = await client.until("session.updated")
        assert updated["session"]["audio"]["output"]["format"] == {"type": name}
        client.say("Talk at length.")
        client.send("response.create")
        await client.until("response.output_audio_transcript.delta", 3)
        client.send("response.cancel")
        response = (await client.until("response.done"))["response"]
        assert response["audio"]["output"]["format"] == {"type": name}
        sound = [base64.b64decode(event["delta"]) for event in client.of("response.output_audio.delta")]
        assert [len(data) for data in sound[:2]] == [160, 800]
        third_s = client.of("response.output_audio_transcript.delta")[2]["start_time"]
        kinds = [event["type"] for event in client.events]
        before = [place for place, kind in enumerate(kinds) if kind == "response.output_audio_transcript.delta"][2]
        heard = [event for event in client.events[:before] if event["type"] == "response.output_audio.delta"]
        assert third_s == pytest.approx(sum(len(base64.b64decode(event["delta"])) for event in heard) / 8000, abs=0.001)
        assert peak(g711.decode(b"".join(sound), law)) == pytest.approx(0.25, abs=0.02), "the hum of the scripted voice"
        item_id = response["output"][0]["id"]
        client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1000 * third_s)
        await client.until("conversation.item.truncated")
        client.send("conversation.item.retrieve", item_id=item_id)
        said = (await client.until("conversation.item.retrieved"))["item"]["content"][0]["transcript"]
        assert said.strip() == "This is sentence number one of a rather long reply. This is sentence number two of a rather long reply."


async def test_a_format_and_a_speed_for_one_response() -> None:
    async with realtime() as client:
        for wish in ({"audio": {"output": {"format": {"type": "audio/pcmu"}, "speed": 0.5}}}, {}, {"audio": {"output": {"speed": 0.25}}}):
            since = len(client.of("response.done"))
            client.say("Hello")
            client.send("response.create", response=wish)
            await client.until("response.done", since + 1)
        formats = [done["response"]["audio"]["output"]["format"]["type"] for done in client.of("response.done")]
        assert formats == ["audio/pcmu", "audio/pcm", "audio/pcm"]
        seconds = [0.0, 0.0, 0.0]
        for event in client.of("response.output_audio.delta"):
            place = int(event["response_id"].rpartition("_")[2]) - 1
            seconds[place] += len(base64.b64decode(event["delta"])) / (8000 if place == 0 else 48_000)
        assert seconds == pytest.approx([2 * seconds[1], seconds[1], 2 * seconds[1]], rel=0.01)


async def test_the_session_shows_the_speed_in_force() -> None:
    async with realtime() as client:
        assert client.events[0]["session"]["audio"]["output"]["speed"] == 1.0
        for n, (asked, shown) in enumerate([(1.5, 1.5), (0.25, 0.5)], 1):
            client.send("session.update", session={"audio": {"output": {"speed": asked}}})
            assert (await client.until("session.updated", n))["session"]["audio"]["output"]["speed"] == shown
