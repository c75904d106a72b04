"""A small OpenAI-compatible chat server as a Ray Serve deployment; its replies name the replica that gave them."""

# No postponed annotations: FastAPI reads them where Ray has moved the class to.
import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve

TOKEN_S = 0.03
WORDS = "and this is a longer sentence so that the reply lasts as long as a real one would"
web = FastAPI()


def chunk(content: str | None, finish: str | None = None) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}) + "\n\n"


@serve.deployment
@serve.ingress(web)
class Chat:
    """Speaks a sentence with the replica's name and the number of messages it was shown."""

    def __init__(self) -> None:
        self._name = serve.get_replica_context().replica_id.unique_id

    @web.get("/v1/models")
    async def models(self) -> dict[str, Any]:  # Any: JSON
        return {"data": [{"id": "scripted"}]}

    @web.post("/v1/chat/completions")
    async def complete(self, request: Request) -> StreamingResponse:
        asked = await request.json()
        return StreamingResponse(self._reply(len(asked["messages"])), media_type="text/event-stream")

    async def _reply(self, n_messages: int) -> AsyncIterator[str]:
        yield chunk(f"Replica {self._name} saw {n_messages} messages, ")
        for word in WORDS.split():
            await asyncio.sleep(TOKEN_S)
            yield chunk(word + " ")
        yield chunk("here.", "stop")
        usage = {"prompt_tokens": 10 * n_messages, "completion_tokens": len(WORDS.split()) + 2}
        yield "data: " + json.dumps({"choices": [], "usage": usage}) + "\n\n"
        yield "data: [DONE]\n\n"
