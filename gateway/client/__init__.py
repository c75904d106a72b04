"""Typed Python client of the native protocol.

    async with connect("ws://127.0.0.1:8080/v1/voice") as conversation:
        reply = await conversation.text("Tell me something about the sea.")
        async for segment in reply.segments():
            print(segment.text)

    async for heard in conversation.hearing:  # after append_audio: speech, transcripts, and the replies to them
        ...

Names are those of the protocol and of the browser's client. A dropped connection is resumed by itself, and every message
is executed once; what cannot be resumed ends the conversation with `ConversationLost`.
"""

from gateway.client.conversation import Conversation, connect
from gateway.client.faults import ConnectFailed, ConversationError, ConversationLost, NoAnswer, Refused
from gateway.client.hearing import Heard, Hearing
from gateway.client.playout import Player, PlayoutClock, SimulatedPlayer
from gateway.client.reply import Reply

__all__ = [
    "ConnectFailed",
    "Conversation",
    "ConversationError",
    "ConversationLost",
    "Heard",
    "Hearing",
    "NoAnswer",
    "Player",
    "PlayoutClock",
    "Refused",
    "Reply",
    "SimulatedPlayer",
    "connect",
]
